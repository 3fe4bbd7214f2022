/** A native kernel: `source/ops/NAME.cpp` defines `NAMEKernel`, and generated/kernels.h lists them. */
#pragma once
#include <stddef.h>
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

/** Arrays that a kernel takes from its scratch, one after the other, each aligned to 64 bytes. */
class ScratchArrays {
 public:
  /** @param base null measures: `sizeBytes` says what the arrays need wherever scratch begins */
  explicit ScratchArrays(uint8_t* base) : next_((reinterpret_cast<uintptr_t>(base) + 63) & ~uintptr_t{63}) {}

  template <class T> T* take(size_t count) {
    T* at = reinterpret_cast<T*>(next_);
    next_ += (count * sizeof(T) + 63) & ~size_t{63};
    return at;
  }

  uint64_t sizeBytes() const { return next_ + 64; }

 private:
  uintptr_t next_;
};

/** Bytes of scratch per thread of kernels whose scratch is an aggregate of operands and arrays. */
template <class OPERANDS, class SCRATCH> uint64_t scratchBytes(const Record& record) {
  const OPERANDS operands(record);
  ScratchArrays arrays(nullptr);
  SCRATCH{operands, arrays};
  return arrays.sizeBytes();
}
}  // namespace WINNOW_NAMESPACE
