/**
 * The Node-API addon: levels of this machine, and kernels attached to a memory. A WebAssembly instance imports `run` of
 * an attachment; a call passes the address of a task in that memory.
 */
#include <node_api.h>
#include <stdlib.h>
#include <string.h>
#include "../simd/level.h"
#include "fault.h"

namespace winnow {
#define X(name, level) \
  namespace name { extern const Level level; }
WINNOW_LEVELS
#undef X

namespace {
/** The levels of this build, best first. */
const Level* const levels[] = {
#define X(name, level) &name::level,
    WINNOW_LEVELS
#undef X
};

/** Kernels of a level over one memory, for one instance. */
struct Attachment {
  const Level* level;
  uint8_t* memory;
  napi_env env;
  /** The function `run` and the instance's export `phaseBarrier`; the references do not keep them alive. */
  napi_ref run;
  napi_ref barrier;
};

void freeAttachment(napi_env, void* data, void*) { free(data); }

napi_value fail(napi_env env, const char* message) {
  napi_throw_error(env, nullptr, message);
  return nullptr;
}

/** The arguments of a call from JavaScript, `undefined` where it has fewer. */
struct Call {
  napi_value arguments[4];
  void* data;
  size_t count = 4;

  Call(napi_env env, napi_callback_info info) { napi_get_cb_info(env, info, &count, arguments, nullptr, &data); }
};

napi_value booleanOf(napi_env env, bool value) {
  napi_value result;
  napi_get_boolean(env, value, &result);
  return result;
}

bool waitAtBarrier(void* context) {
  const Attachment* attachment = static_cast<const Attachment*>(context);
  napi_value barrier, global;
  return outsideKernel([&] {
    return napi_get_reference_value(attachment->env, attachment->barrier, &barrier) == napi_ok && barrier != nullptr &&
           napi_get_global(attachment->env, &global) == napi_ok &&
           napi_call_function(attachment->env, global, barrier, 0, nullptr, nullptr) == napi_ok;
  });
}

/** `run(task)` computes the share of this thread; false if the interpreter has to. Throws where the kernel faults. */
napi_value run(napi_env env, napi_callback_info info) {
  const Call call(env, info);
  int32_t task;
  napi_get_value_int32(env, call.arguments[0], &task);
  Attachment* attachment = static_cast<Attachment*>(call.data);
  bool isDone = false;
  const bool hasReturned =
      returnsFrom([&] { isDone = attachment->level->run(attachment->memory, static_cast<uint32_t>(task), {waitAtBarrier, attachment}); });
  return hasReturned ? booleanOf(env, isDone) : fail(env, "a native kernel crashed");
}

/** `measure(task, to)`: whether there is a kernel for a record; stores its bytes of scratch in `to`, a Float64Array of two. */
napi_value measure(napi_env env, napi_callback_info info) {
  const Call call(env, info);
  int32_t task;
  void* to;
  size_t length;
  if (napi_get_value_int32(env, call.arguments[0], &task) != napi_ok ||
      napi_get_typedarray_info(env, call.arguments[1], nullptr, &length, &to, nullptr, nullptr) != napi_ok || length < 2) {
    return fail(env, "measure: expected (task, Float64Array of 2)");
  }
  const Attachment* attachment = static_cast<Attachment*>(call.data);
  ScratchBytes scratch = {0, 0};
  const bool isSupported = attachment->level->measure(attachment->memory, static_cast<uint32_t>(task), &scratch);
  static_cast<double*>(to)[0] = static_cast<double>(scratch.shared);
  static_cast<double*>(to)[1] = static_cast<double>(scratch.local);
  return booleanOf(env, isSupported);
}

/** `connect(phaseBarrier)` sets the barrier of the instance; it is known only after the instance has been created. */
napi_value connect(napi_env env, napi_callback_info info) {
  const Call call(env, info);
  const napi_value barrier = call.arguments[0];
  Attachment* attachment = static_cast<Attachment*>(call.data);
  napi_value run;
  // the instance holds `run`, which holds the barrier as a property: all of them can be collected together, but not one alone
  if (napi_create_reference(env, barrier, 0, &attachment->barrier) != napi_ok ||
      napi_get_reference_value(env, attachment->run, &run) != napi_ok || run == nullptr ||
      napi_set_named_property(env, run, "phaseBarrier", barrier) != napi_ok) {
    return fail(env, "connect: expected a function");
  }
  return nullptr;
}

/** The level that the argument names, or null after throwing. */
const Level* levelOf(napi_env env, napi_value argument) {
  char name[32] = "";
  napi_get_value_string_utf8(env, argument, name, sizeof name, nullptr);
  for (const Level* level : levels) {
    if (strcmp(level->name, name) == 0 && level->isAvailable()) return level;
  }
  fail(env, "native kernels: this machine does not have the level");
  return nullptr;
}

napi_value setFunction(napi_env env, napi_value object, const char* name, napi_callback callback, void* data) {
  napi_value function;
  napi_create_function(env, name, NAPI_AUTO_LENGTH, callback, data, &function);
  napi_set_named_property(env, object, name, function);
  return function;
}

/** `attach(bytes, level)`: kernels over the memory that `bytes` views from its beginning. */
napi_value attach(napi_env env, napi_callback_info info) {
  const Call call(env, info);
  void* bytes;
  if (napi_get_typedarray_info(env, call.arguments[0], nullptr, nullptr, &bytes, nullptr, nullptr) != napi_ok) {
    return fail(env, "attach: expected (Uint8Array, level)");
  }
  const Level* level = levelOf(env, call.arguments[1]);
  if (level == nullptr) return nullptr;
  Attachment* attachment = static_cast<Attachment*>(malloc(sizeof(Attachment)));
  if (attachment == nullptr) return fail(env, "attach: out of memory");
  *attachment = {level, static_cast<uint8_t*>(bytes), env, nullptr, nullptr};
  napi_value result;
  napi_create_object(env, &result);
  napi_value runFunction = setFunction(env, result, "run", run, attachment);
  napi_create_reference(env, runFunction, 0, &attachment->run);
  // the attachment lives as long as any function that uses it
  napi_add_finalizer(env, runFunction, attachment, freeAttachment, nullptr, nullptr);
  napi_set_named_property(env, setFunction(env, result, "measure", measure, attachment), "run", runFunction);
  napi_set_named_property(env, setFunction(env, result, "connect", connect, attachment), "run", runFunction);
  return result;
}

/** `levels()`: names of the levels that this machine has, best first. */
napi_value listLevels(napi_env env, napi_callback_info) {
  napi_value result;
  napi_create_array(env, &result);
  uint32_t numFound = 0;
  for (const Level* level : levels) {
    if (!level->isAvailable()) continue;
    napi_value name;
    napi_create_string_utf8(env, level->name, NAPI_AUTO_LENGTH, &name);
    napi_set_element(env, result, numFound++, name);
  }
  return result;
}

/** `selfTest(level)`: runs instructions of the level; false if their results are wrong. */
napi_value selfTest(napi_env env, napi_callback_info info) {
  const Level* level = levelOf(env, Call(env, info).arguments[0]);
  return level == nullptr ? nullptr : booleanOf(env, level->selfTest());
}

/**
 * `measurePeak(level, peak, bytes, count)`: runs `count` passes of 'f32' or 'int8' arithmetic, or reads `bytes` for 'read'; returns the
 * operations or bytes.
 */
napi_value measurePeak(napi_env env, napi_callback_info info) {
  const Call call(env, info);
  char name[8] = "";
  void* bytes;
  size_t length;
  int64_t passes;
  if (napi_get_value_string_utf8(env, call.arguments[1], name, sizeof name, nullptr) != napi_ok ||
      napi_get_typedarray_info(env, call.arguments[2], nullptr, &length, &bytes, nullptr, nullptr) != napi_ok ||
      napi_get_value_int64(env, call.arguments[3], &passes) != napi_ok || passes < 0) {
    return fail(env, "measurePeak: expected (level, 'f32' | 'int8' | 'read', Uint8Array, count)");
  }
  const Level* level = levelOf(env, call.arguments[0]);
  if (level == nullptr) return nullptr;
  const bool isRead = strcmp(name, "read") == 0;
  const Peak peak = isRead ? Peak::Read : strcmp(name, "f32") == 0 ? Peak::Floats : Peak::Products;
  napi_value result;
  const uint64_t amount = isRead ? length : static_cast<uint64_t>(passes);
  napi_create_double(env, level->measurePeak(peak, static_cast<const uint8_t*>(bytes), amount), &result);
  return result;
}
}  // namespace
}  // namespace winnow

NAPI_MODULE_INIT() {
  winnow::handleFaults();
  winnow::setFunction(env, exports, "levels", winnow::listLevels, nullptr);
  winnow::setFunction(env, exports, "selfTest", winnow::selfTest, nullptr);
  winnow::setFunction(env, exports, "attach", winnow::attach, nullptr);
  winnow::setFunction(env, exports, "measurePeak", winnow::measurePeak, nullptr);
  return exports;
}
