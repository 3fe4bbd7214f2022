/** Threads: barriers, the distribution of work items, and prefetching while a thread waits. */
import * as layout from './layout.generated';

/** How often an idle thread polls for the next job before it sleeps: the host may need its core. */
const IDLE_SPINS: i32 = 20000;

let threadIndex: i32 = 0;
let numThreads: i32 = 1;
let isSerial: bool = true;
let localItem: i32 = 0;
/** The counter that assigns the record's work items; records without a barrier between them use different counters. */
let counter: usize = layout.NEXT_ITEM;

// the memory that this thread needs next, as parallel streams
let prefetchAt: usize = 0;
let prefetchEnd: usize = 0;
let prefetchStride: usize = 0;
let prefetchStreams: i32 = 0;
let prefetchBase: usize = 0;
/** Sum of the prefetched words, so that no compiler removes the loads. */
let prefetchSum: i32 = 0;

/** Bytes of a cache line, and the maximum number of bytes to prefetch: about half of a core's L2 cache. */
const LINE_BYTES: usize = 64;
const MAX_PREFETCH_BYTES: usize = 0x100000;

/**
 * Makes this thread prefetch `streams` streams of `stride` bytes, the first at `base`, while it waits for other threads: memory
 * is idle during small records. Calling it again with the same `base` has no effect.
 */
export function setPrefetch(base: usize, stride: usize, streams: i32): void {
  if (base === prefetchBase) return;
  prefetchBase = base;
  prefetchAt = base;
  prefetchEnd = base + min<usize>(stride, MAX_PREFETCH_BYTES / <usize>streams);
  prefetchStride = stride;
  prefetchStreams = streams;
}

/** Prefetches until a word equals `value` (or stops doing so), or nothing is left to read. */
function prefetch(word: usize, value: i32, isUntilEqual: bool): void {
  while (prefetchAt < prefetchEnd && (atomic.load<i32>(word) === value) !== isUntilEqual) {
    let at = prefetchAt;
    for (let i = prefetchStreams; i > 0; i--, at += prefetchStride) prefetchSum += load<i32>(at);
    prefetchAt += LINE_BYTES;
  }
}

export function enterThreads(index: i32, count: i32): void {
  threadIndex = index;
  numThreads = count;
}

export function thread(): i32 {
  return threadIndex;
}

/** Number of threads; only for grain sizes on which results do not depend. */
export function threads(): i32 {
  return numThreads;
}

/** Number of threads that work on this record. */
export function sharers(): i32 {
  return isSerial ? 1 : numThreads;
}

/** A serial record runs on thread 0 alone: its barriers are free and its work items come from a counter of its own. */
export function setSerial(serial: bool): void {
  isSerial = serial || numThreads === 1;
  localItem = 0;
}

/** Takes the next `count` work items of this phase of the record; the caller compares with its total. */
export function nextItems(count: i32): i32 {
  if (isSerial) {
    const begin = localItem;
    localItem = begin + count;
    return begin;
  }
  return atomic.add<i32>(counter, count);
}

/** For records that assign every thread its first work item statically: the index of this thread's. */
export function firstItem(): i32 {
  return isSerial ? nextItems(1) : threadIndex;
}
/** The index of the next work item of such a record, assigned dynamically. */
export function nextItem(): i32 {
  return isSerial ? nextItems(1) : numThreads + nextItems(1);
}

/** The counter of this record's work items; 0 if it runs on one thread. */
export function sharedCounter(): usize {
  return isSerial ? 0 : counter;
}

/** Barrier before the first record of a thread. */
export function firstBarrier(): void {
  if (numThreads > 1) meet();
}

/** Moves on to a record that needs no barrier before it. */
export function nextCounter(): void {
  counter += layout.COUNTER_BYTES;
}

/** Barrier between the phases of a record. */
export function phaseBarrier(): void {
  localItem = 0;
  if (!isSerial) meet();
}

/** Barrier between records; returns whether the job continues. */
export function recordBarrier(): bool {
  if (numThreads === 1) return atomic.load<i32>(layout.CANCEL) === 0;
  meet();
  return load<i32>(layout.STOP) === 0;
}

/** Counts this thread as arrived at the barrier; true for the last thread. */
function arrive(): bool {
  const before = atomic.add<i32>(layout.ARRIVED, 1);
  if (before === numThreads - 2 && atomic.load<i32>(layout.GATHERING) !== 0) atomic.notify(layout.ARRIVED, -1);
  return before === numThreads - 1;
}

/**
 * Precedes a record that runs on thread 0 alone: thread 0 waits until all others have finished the previous record. They go
 * straight to the barrier after the serial record, which therefore costs one wake-up instead of two.
 */
export function gather(): void {
  if (threadIndex !== 0 || numThreads === 1) return;
  const others = numThreads - 1;
  prefetch(layout.ARRIVED, others, true);
  for (let i = load<i32>(layout.SPINS); i > 0; i--) if (atomic.load<i32>(layout.ARRIVED) === others) return;
  atomic.store<i32>(layout.GATHERING, 1);
  for (;;) {
    const arrived = atomic.load<i32>(layout.ARRIVED);
    if (arrived === others) break;
    atomic.wait<i32>(layout.ARRIVED, arrived, -1);
  }
  atomic.store<i32>(layout.GATHERING, 0);
}

/** Called by the last thread to arrive, while all others wait. */
function resetCounters(): void {
  for (let at: usize = 0; at < layout.NUM_COUNTERS * layout.COUNTER_BYTES; at += layout.COUNTER_BYTES)
    store<i32>(layout.NEXT_ITEM + at, 0);
}

function meet(): void {
  const phase = atomic.load<i32>(layout.PHASE);
  counter = layout.NEXT_ITEM;
  if (arrive()) {
    atomic.store<i32>(layout.ARRIVED, 0);
    resetCounters();
    store<i32>(layout.STOP, atomic.load<i32>(layout.CANCEL));
    atomic.store<i32>(layout.PHASE, phase + 1);
    if (atomic.load<i32>(layout.SLEEPERS) !== 0) atomic.notify(layout.PHASE, -1);
    return;
  }
  prefetch(layout.PHASE, phase, false);
  for (let i = load<i32>(layout.SPINS); i > 0; i--) if (atomic.load<i32>(layout.PHASE) !== phase) return;
  atomic.add<i32>(layout.SLEEPERS, 1);
  while (atomic.load<i32>(layout.PHASE) === phase) atomic.wait<i32>(layout.PHASE, phase, -1);
  atomic.sub<i32>(layout.SLEEPERS, 1);
}

/** Ends a job: the last thread to arrive marks it as done for the host. True on that thread. */
export function finishJob(generation: i32): bool {
  counter = layout.NEXT_ITEM;
  if (!arrive()) return false;
  atomic.store<i32>(layout.ARRIVED, 0);
  resetCounters();
  atomic.store<i32>(layout.DONE, generation);
  return true;
}

/** Waits for the job after `generation`; returns its number, or -1 when the thread should exit. */
export function awaitJob(generation: i32): i32 {
  for (let i = 0; i < IDLE_SPINS; i++)
    if (atomic.load<i32>(layout.GENERATION) !== generation) return generationOrLeave();
  atomic.add<i32>(layout.IDLERS, 1);
  while (atomic.load<i32>(layout.GENERATION) === generation) atomic.wait<i32>(layout.GENERATION, generation, -1);
  atomic.sub<i32>(layout.IDLERS, 1);
  return generationOrLeave();
}

function generationOrLeave(): i32 {
  return atomic.load<i32>(layout.CANCEL) === layout.LEAVE ? -1 : atomic.load<i32>(layout.GENERATION);
}
