/** A native kernel: `source/ops/NAME.cpp` defines `NAMEKernel`, and generated/kernels.h lists them. */
#pragma once
#include "record.h"
#include "threads.h"

namespace WINNOW_NAMESPACE {

/** The bytes of a kernel without scratch of a kind. */
inline uint64_t noScratch(const Record&) { return 0; }

struct Kernel {
  /** Whether the kernel computes records with these dtypes, shapes and flags; all symbols are at their capacity. */
  bool (*supports)(const Record& record);
  /** Bytes of scratch that all threads share, and per thread; the interpreter's kernel may need less or more. */
  uint64_t (*sharedBytes)(const Record& record);
  uint64_t (*localBytes)(const Record& record);
  /** Computes the share of this thread. */
  void (*run)(const Record& record, Threads& threads);
  /**
   * Whether the kernel takes a record with its present sizes; null for always. Other records go to the interpreter's kernel.
   * All threads must decide alike, and so must records that share scratch by `FLAG_REUSE`.
   */
  bool (*takes)(const Record& record) = nullptr;
};

}  // namespace WINNOW_NAMESPACE
