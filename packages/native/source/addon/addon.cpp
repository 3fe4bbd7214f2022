/**
 * The Node-API addon: levels of this machine, and kernels attached to a memory. A WebAssembly instance imports `run` of
 * an attachment; a call passes the address of a task in that memory.
 */
#include <node_api.h>
#include <stdlib.h>
#include <string.h>
#include "../runtime/level.h"

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
  Attachment* next;
};

/** The attachments of an environment: of a thread. */
struct Environment { Attachment* first; };

void freeEnvironment(napi_env, void* data, void*) {
  Environment* environment = static_cast<Environment*>(data);
  for (Attachment* at = environment->first; at != nullptr;) {
    Attachment* next = at->next;
    free(at);
    at = next;
  }
  free(environment);
}

napi_value fail(napi_env env, const char* message) {
  napi_throw_error(env, nullptr, message);
  return nullptr;
}

bool waitAtBarrier(void* context) {
  const Attachment* attachment = static_cast<const Attachment*>(context);
  napi_value barrier, global;
  return napi_get_reference_value(attachment->env, attachment->barrier, &barrier) == napi_ok && barrier != nullptr &&
         napi_get_global(attachment->env, &global) == napi_ok &&
         napi_call_function(attachment->env, global, barrier, 0, nullptr, nullptr) == napi_ok;
}

/** `run(task)` computes the share of this thread; false if the interpreter has to. */
napi_value run(napi_env env, napi_callback_info info) {
  size_t count = 1;
  napi_value argument;
  void* data;
  int32_t task;
  napi_get_cb_info(env, info, &count, &argument, nullptr, &data);
  napi_get_value_int32(env, argument, &task);
  Attachment* attachment = static_cast<Attachment*>(data);
  const bool isDone = attachment->level->run(attachment->memory, static_cast<uint32_t>(task), {waitAtBarrier, attachment});
  napi_value result;
  napi_get_boolean(env, isDone, &result);
  return result;
}

/** `measure(task, to)`: whether there is a kernel for a record; stores its bytes of scratch in `to`, a Float64Array of two. */
napi_value measure(napi_env env, napi_callback_info info) {
  size_t count = 2;
  napi_value arguments[2];
  void* data;
  int32_t task;
  void* to;
  size_t length;
  if (napi_get_cb_info(env, info, &count, arguments, nullptr, &data) != napi_ok || count < 2 ||
      napi_get_value_int32(env, arguments[0], &task) != napi_ok ||
      napi_get_typedarray_info(env, arguments[1], nullptr, &length, &to, nullptr, nullptr) != napi_ok || length < 2) {
    return fail(env, "measure: expected (task, Float64Array of 2)");
  }
  const Attachment* attachment = static_cast<Attachment*>(data);
  ScratchBytes scratch = {0, 0};
  const bool isSupported = attachment->level->measure(attachment->memory, static_cast<uint32_t>(task), &scratch);
  static_cast<double*>(to)[0] = static_cast<double>(scratch.shared);
  static_cast<double*>(to)[1] = static_cast<double>(scratch.local);
  napi_value result;
  napi_get_boolean(env, isSupported, &result);
  return result;
}

/** `connect(phaseBarrier)` sets the barrier of the instance; it is known only after the instance has been created. */
napi_value connect(napi_env env, napi_callback_info info) {
  size_t count = 1;
  napi_value barrier;
  void* data;
  napi_get_cb_info(env, info, &count, &barrier, nullptr, &data);
  Attachment* attachment = static_cast<Attachment*>(data);
  napi_value run;
  // the instance holds `run`, which holds the barrier as a property: all of them can be collected together, but not one alone
  if (napi_create_reference(env, barrier, 0, &attachment->barrier) != napi_ok ||
      napi_get_reference_value(env, attachment->run, &run) != napi_ok || run == nullptr ||
      napi_set_named_property(env, run, "phaseBarrier", barrier) != napi_ok) {
    return fail(env, "connect: expected a function");
  }
  return nullptr;
}

const Level* findLevel(const char* name) {
  for (const Level* level : levels) {
    if (strcmp(level->name, name) == 0 && level->isAvailable()) return level;
  }
  return nullptr;
}

/** The level that the argument names, or null after throwing. */
const Level* levelOf(napi_env env, napi_value argument) {
  char name[32] = "";
  const Level* level = nullptr;
  if (napi_get_value_string_utf8(env, argument, name, sizeof name, nullptr) == napi_ok) level = findLevel(name);
  if (level == nullptr) fail(env, "native kernels: this machine does not have the level");
  return level;
}

napi_value setFunction(napi_env env, napi_value object, const char* name, napi_callback callback, void* data) {
  napi_value function;
  napi_create_function(env, name, NAPI_AUTO_LENGTH, callback, data, &function);
  napi_set_named_property(env, object, name, function);
  return function;
}

/** `attach(bytes, level)`: kernels over the memory that `bytes` views from its beginning. */
napi_value attach(napi_env env, napi_callback_info info) {
  size_t count = 2;
  napi_value arguments[2];
  void* bytes;
  if (napi_get_cb_info(env, info, &count, arguments, nullptr, nullptr) != napi_ok || count < 2 ||
      napi_get_typedarray_info(env, arguments[0], nullptr, nullptr, &bytes, nullptr, nullptr) != napi_ok) {
    return fail(env, "attach: expected (Uint8Array, level)");
  }
  const Level* level = levelOf(env, arguments[1]);
  if (level == nullptr) return nullptr;
  Environment* environment;
  napi_get_instance_data(env, reinterpret_cast<void**>(&environment));
  Attachment* attachment = static_cast<Attachment*>(malloc(sizeof(Attachment)));
  if (attachment == nullptr) return fail(env, "attach: out of memory");
  *attachment = {level, static_cast<uint8_t*>(bytes), env, nullptr, nullptr, environment->first};
  environment->first = attachment;
  napi_value result;
  napi_create_object(env, &result);
  napi_value runFunction = setFunction(env, result, "run", run, attachment);
  napi_create_reference(env, runFunction, 0, &attachment->run);
  setFunction(env, result, "measure", measure, attachment);
  setFunction(env, result, "connect", connect, attachment);
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
  size_t count = 1;
  napi_value argument, result;
  napi_get_cb_info(env, info, &count, &argument, nullptr, nullptr);
  const Level* level = levelOf(env, argument);
  if (level == nullptr) return nullptr;
  napi_get_boolean(env, level->selfTest(), &result);
  return result;
}

/**
 * `measurePeak(level, peak, bytes, count)`: runs `count` passes of 'f32' or 'int8' arithmetic, or reads `bytes` for 'read'; returns the
 * operations or bytes.
 */
napi_value measurePeak(napi_env env, napi_callback_info info) {
  size_t count = 4;
  napi_value arguments[4];
  char name[8] = "";
  void* bytes;
  size_t length;
  int64_t passes;
  if (napi_get_cb_info(env, info, &count, arguments, nullptr, nullptr) != napi_ok || count < 4 ||
      napi_get_value_string_utf8(env, arguments[1], name, sizeof name, nullptr) != napi_ok ||
      napi_get_typedarray_info(env, arguments[2], nullptr, &length, &bytes, nullptr, nullptr) != napi_ok ||
      napi_get_value_int64(env, arguments[3], &passes) != napi_ok || passes < 0) {
    return fail(env, "measurePeak: expected (level, 'f32' | 'int8' | 'read', Uint8Array, count)");
  }
  const Level* level = levelOf(env, arguments[0]);
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
  auto* environment = static_cast<winnow::Environment*>(calloc(1, sizeof(winnow::Environment)));
  if (environment == nullptr || napi_set_instance_data(env, environment, winnow::freeEnvironment, nullptr) != napi_ok) {
    return winnow::fail(env, "native kernels: out of memory");
  }
  winnow::setFunction(env, exports, "levels", winnow::listLevels, nullptr);
  winnow::setFunction(env, exports, "selfTest", winnow::selfTest, nullptr);
  winnow::setFunction(env, exports, "attach", winnow::attach, nullptr);
  winnow::setFunction(env, exports, "measurePeak", winnow::measurePeak, nullptr);
  return exports;
}
