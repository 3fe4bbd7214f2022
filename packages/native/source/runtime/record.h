/**
 * The record that a thread executes: the operands that the interpreter decoded into the frame of the thread. Generated
 * accessors of source/generated/operands give the operands their names.
 */
#pragma once
#include <stddef.h>

#include "generated/layout.h"
#include "../simd/level.h"

namespace WINNOW_NAMESPACE {
/** A tensor in the frame. */
struct Slot {
  int32_t isPresent;
  /** GGUF number. */
  int32_t dtype;
  uint32_t address;
  int32_t rank;
  int32_t dims[8];
};
static_assert(offsetof(Slot, isPresent) == SLOT_PRESENT && offsetof(Slot, dtype) == SLOT_DTYPE);
static_assert(offsetof(Slot, address) == SLOT_ADDRESS && offsetof(Slot, rank) == SLOT_RANK);
static_assert(offsetof(Slot, dims) == SLOT_DIMS && sizeof(Slot) == SLOT_BYTES);

/** What the interpreter passes with a record; see `nativeTask` in memory-layout.ts. */
struct Task {
  int32_t opcode;
  uint32_t plan;
  uint32_t attributes;
  uint32_t sharedScratch;
  uint32_t localScratch;
  /** Address of the counter of work items, 0 for records that run on one thread. */
  uint32_t counter;
  int32_t thread;
  int32_t numThreads;
};
static_assert(offsetof(Task, opcode) == TASK_OPCODE && offsetof(Task, plan) == TASK_PLAN);
static_assert(offsetof(Task, attributes) == TASK_ATTRIBUTES && offsetof(Task, sharedScratch) == TASK_SHARED);
static_assert(offsetof(Task, localScratch) == TASK_LOCAL && offsetof(Task, counter) == TASK_COUNTER);
static_assert(offsetof(Task, thread) == TASK_THREAD && offsetof(Task, numThreads) == TASK_NUM_THREADS);

class Record {
 public:
  Record(uint8_t* memory, uint32_t task, bool hasTiles)
      : memory_(memory),
        hasTiles_(hasTiles),
        task_(reinterpret_cast<const Task*>(memory + task)),
        slots_(reinterpret_cast<const Slot*>(memory + task - TASK_OFFSET)) {}

  const Task& task() const { return *task_; }
  /** Whether kernels may use tiles of AMX. */
  bool hasTiles() const { return hasTiles_; }

  bool isPresent(int tensor) const { return slots_[tensor].isPresent != 0; }
  /** GGUF number of the dtype; see generated/dtypes.h. */
  int32_t dtypeOf(int tensor) const { return slots_[tensor].dtype; }
  uint8_t* addressOf(int tensor) const { return memory_ + slots_[tensor].address; }
  int32_t rankOf(int tensor) const { return slots_[tensor].rank; }
  int32_t dim(int tensor, int axis) const { return slots_[tensor].dims[axis]; }
  /** The dim at a distance from the end: 1 is the last one. */
  int32_t dimFromEnd(int tensor, int distance) const { return dim(tensor, rankOf(tensor) - distance); }
  /** Product of all dims but the last. */
  int32_t countRows(int tensor) const {
    int32_t product = 1;
    for (int axis = rankOf(tensor) - 2; axis >= 0; axis--) product *= dim(tensor, axis);
    return product;
  }
  int32_t countElements(int tensor) const { return rankOf(tensor) == 0 ? 1 : countRows(tensor) * dimFromEnd(tensor, 1); }

  int32_t attributeI(int index) const { return words(task_->attributes)[index]; }
  float attributeF(int index) const { return reinterpret_cast<const float*>(words(task_->attributes))[index]; }
  bool hasFlag(uint32_t flag) const { return (static_cast<uint32_t>(words(task_->plan)[PLAN_FLAGS / 4]) & flag) != 0; }
  /** Whether the tokens of a step of this size must have the bits of steps of their own. */
  bool isInvariant(int32_t numTokens) const { return numTokens <= MAX_INVARIANT_TOKENS && hasFlag(FLAG_INVARIANT); }
  /** Scratch that all threads share. */
  uint8_t* sharedScratch() const { return memory_ + task_->sharedScratch; }
  /** Scratch of this thread. */
  uint8_t* localScratch() const { return memory_ + task_->localScratch; }

 private:
  const int32_t* words(uint32_t address) const { return reinterpret_cast<const int32_t*>(memory_ + address); }

  uint8_t* memory_;
  bool hasTiles_;
  const Task* task_;
  const Slot* slots_;
};
}  // namespace WINNOW_NAMESPACE
