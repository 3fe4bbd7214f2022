/**
 * Faults of kernels: a thread that gets SIGSEGV, SIGBUS, SIGILL or SIGFPE in a kernel leaves it, which is safe since kernels own nothing.
 * All other faults go to the handlers that were there before, such as V8's for WebAssembly. On Windows they end the process.
 */
#pragma once
#if !defined(_WIN32)
#include <setjmp.h>

namespace winnow {
/** Where a thread goes on after a fault; null outside kernels. Handlers read it, so that it must not be allocated on first use. */
#if defined(__GLIBC__)
[[gnu::tls_model("initial-exec")]]
#endif
extern __thread sigjmp_buf* afterFault;

/** Handles the faults of this process from the first call on. */
void handleFaults();

/** Calls a kernel; false where a fault ended it. */
template <class F> bool returnsFrom(F kernel) {
  sigjmp_buf here;
  const bool isFirst = sigsetjmp(here, 0) == 0;
  afterFault = isFirst ? &here : nullptr;
  if (isFirst) kernel();
  afterFault = nullptr;
  return isFirst;
}

/** Calls something else from within a kernel. */
template <class F> auto outsideKernel(F call) {
  sigjmp_buf* const inside = afterFault;
  afterFault = nullptr;
  const auto result = call();
  afterFault = inside;
  return result;
}
}  // namespace winnow
#else
namespace winnow {
inline void handleFaults() {}
template <class F> bool returnsFrom(F kernel) { return kernel(), true; }
template <class F> auto outsideKernel(F call) { return call(); }
}  // namespace winnow
#endif
