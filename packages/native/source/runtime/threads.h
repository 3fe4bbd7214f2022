/** Threads of a record: work items from the counters of the interpreter, and its barrier. */
#pragma once
#include <stdint.h>
#include "record.h"

namespace WINNOW_NAMESPACE {
class Threads {
 public:
  Threads(uint8_t* memory, const Task& task, BarrierCall barrier)
      : memory_(memory), counter_(task.counter), thread_(task.thread), numThreads_(task.numThreads), barrier_(barrier) {}

  /** Number of threads that work on this record, and the index of this one. */
  int32_t numThreads() const { return numThreads_; }
  int32_t thread() const { return thread_; }

  /** Takes the next `count` work items of this phase of the record; the caller compares with its total. */
  int32_t nextItems(int32_t count) {
    if (isStopped_) return INT32_MAX;
    if (counter_ == 0) {
      const int32_t begin = localItem_;
      localItem_ = begin + count;
      return begin;
    }
    return __atomic_fetch_add(reinterpret_cast<int32_t*>(memory_ + counter_), count, __ATOMIC_SEQ_CST);
  }

  /** For records that assign every thread its first work item statically: the index of this thread's. */
  int32_t firstItem() { return counter_ == 0 ? nextItems(1) : thread_; }
  /** The index of the next work item of such a record, assigned dynamically. */
  int32_t nextItem() { return counter_ == 0 ? nextItems(1) : numThreads_ + nextItems(1); }

  /**
   * Barrier between the phases of a record. False if the thread ends: the kernel returns at once. Records with
   * `FLAG_REUSE` or `FLAG_INDEPENDENT` must not have phases, since other threads may be in another record.
   */
  bool barrier() {
    localItem_ = 0;
    if (counter_ == 0) return true;
    counter_ = NEXT_ITEM;
    if (!isStopped_ && !barrier_.wait(barrier_.context)) isStopped_ = true;
    return !isStopped_;
  }

 private:
  uint8_t* memory_;
  uint32_t counter_;
  int32_t thread_;
  int32_t numThreads_;
  BarrierCall barrier_;
  int32_t localItem_ = 0;
  bool isStopped_ = false;
};
}  // namespace WINNOW_NAMESPACE
