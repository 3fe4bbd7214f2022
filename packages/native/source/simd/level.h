/**
 * What a level, one instruction set, offers the addon. Plain data and function pointers: every function of a level lives
 * in the namespace of the level, so that the linker never mixes instruction sets.
 */
#pragma once
#include <stdint.h>

#ifdef WINNOW_LEVEL
#define WINNOW_NAMESPACE winnow::WINNOW_LEVEL
#endif

namespace winnow {
/** Waits until all threads of the record have arrived; false if the thread has to end instead. */
struct BarrierCall {
  bool (*wait)(void* context);
  void* context;
};

/** Bytes of scratch of a record. */
struct ScratchBytes {
  uint64_t shared;
  uint64_t local;
};

/** What a measurement of the machine runs. */
enum class Peak { Floats, Products, Read };

struct Level {
  const char* name;
  /** Whether this processor has all instructions of the level and the operating system saves its registers. */
  bool (*isAvailable)();
  /** Runs instructions of the level; true if their results are right. */
  bool (*selfTest)();
  /** Whether there is a kernel for the record of a task, and the scratch that it needs. */
  bool (*measure)(uint8_t* memory, uint32_t task, ScratchBytes* scratch);
  /** Computes the share of one thread; false, with no effect, if the interpreter has to. */
  bool (*run)(uint8_t* memory, uint32_t task, BarrierCall barrier);
  /** Runs a loop: `count` passes of arithmetic, or `count` bytes to read. Returns its operations or bytes. */
  double (*measurePeak)(Peak peak, const uint8_t* bytes, uint64_t count);
};
}  // namespace winnow
