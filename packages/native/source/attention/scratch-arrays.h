/** Arrays that a kernel takes from its scratch, one after the other, each aligned to 64 bytes. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "../runtime/record.h"

namespace WINNOW_NAMESPACE {

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
