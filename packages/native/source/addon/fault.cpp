#include "fault.h"
#if !defined(_WIN32)
#include <dlfcn.h>
#include <signal.h>

namespace winnow {
__thread sigjmp_buf* afterFault = nullptr;

namespace {
constexpr int NUM_FAULTS = 4, FAULTS[NUM_FAULTS] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
struct sigaction earlierActions[NUM_FAULTS];

void onFault(int signal, siginfo_t* info, void* context) {
  // a signal that a process sent is no fault
  if (afterFault != nullptr && info->si_code > 0) siglongjmp(*afterFault, 1);
  for (int i = 0; i < NUM_FAULTS; i++) {
    if (FAULTS[i] != signal) continue;
    if ((earlierActions[i].sa_flags & SA_SIGINFO) != 0) return earlierActions[i].sa_sigaction(signal, info, context);
    sigaction(signal, &earlierActions[i], nullptr);
    raise(signal);
  }
}
}  // namespace

void handleFaults() {
  static bool isHandling = false;
  if (__atomic_exchange_n(&isHandling, true, __ATOMIC_SEQ_CST)) return;
  // Node closes the addon with the last thread that has loaded it; the handlers must stay
  Dl_info addon;
  if (dladdr(earlierActions, &addon) == 0 || dlopen(addon.dli_fname, RTLD_NOW) == nullptr) return;
  struct sigaction action = {};
  action.sa_sigaction = onFault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  for (int i = 0; i < NUM_FAULTS; i++) sigaction(FAULTS[i], &action, &earlierActions[i]);
}
}  // namespace winnow
#endif
