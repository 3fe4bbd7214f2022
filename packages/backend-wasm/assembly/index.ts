/** The interpreter: every thread walks the same plan and takes its share of the work items of every record. */
import * as layout from './runtime/layout.generated';
import { prefetchMatmul } from './gemm/int8-matmul';
import { execute, localBytesOf, numOperands, sharedBytesOf, workOf } from './dispatch.generated';
import { aux, enterJob, enterRecord, hasFlag, opcodeAt, writeTask } from './runtime/record';
import * as workers from './runtime/threads';

declare function now(): f64;
declare function jobDone(generation: i32): void;
/** Computes this thread's share of a record, whose task is at an address; false if this module has to. */
declare function nativeKernel(task: usize): bool;

/** Native kernels wait for other threads as those of this module do. */
export { phaseBarrier } from './runtime/threads';

/** Whether a record is too small to be worth splitting among threads. */
function isSmall(opcode: i32): bool {
  return workOf(opcode) < <f64>load<i32>(layout.MIN_WORK);
}

/** Runs records `[begin, end)` of the job in the control words, and sets a flag there if the job is canceled midway. */
function runRecords(thread: i32): void {
  const job = <usize>load<u32>(layout.JOB);
  const begin = load<i32>(layout.JOB, 4);
  const end = load<i32>(layout.JOB, 8);
  const plan = <usize>load<u32>(job, layout.JOB_PLAN);
  const profile = <usize>load<u32>(job, layout.JOB_PROFILE);
  enterJob(job, thread);
  let wasSmall = false;
  let start: f64 = profile !== 0 ? now() : 0;
  for (let record = begin; record < end; record++) {
    const entry = plan + <usize>record * layout.PLAN_BYTES;
    const opcode = opcodeAt(entry);
    enterRecord(entry, numOperands(opcode));
    if (workers.threads() > 1) prefetchNext(plan, record, end);
    // without a barrier before it, splitting a record costs nothing
    const isFree = record > begin && !wasSmall && hasFlag(layout.FLAG_INDEPENDENT);
    const small = !isFree && isSmall(opcode);
    if (isFree) workers.nextCounter();
    else if (record > begin && small && !wasSmall) workers.gather();
    else if (record > begin && !small && !workers.recordBarrier()) {
      store<i32>(layout.JOB, 1, 12);
      return;
    }
    if (profile !== 0 && record > begin && thread === 0) start = lap(profile, record - 1, start);
    workers.setSerial(small);
    if (!small || thread === 0) executeRecord(opcode, thread);
    wasSmall = small;
  }
  if (profile !== 0) {
    workers.recordBarrier();
    if (thread === 0) lap(profile, end - 1, start);
  }
}

/** Computes this thread's share of the entered record, with the native kernel where every thread has it. */
function executeRecord(opcode: i32, thread: i32): void {
  const isNative = hasFlag(layout.FLAG_NATIVE) && load<i32>(layout.NATIVE_OFF) === 0;
  if (!isNative || !nativeKernel(writeTask(opcode, workers.sharedCounter(), thread, workers.sharers())))
    execute(opcode);
  else if (thread === 0) store<i32>(layout.NATIVE_RECORDS, load<i32>(layout.NATIVE_RECORDS) + 1);
}

/** Lets this thread prefetch weights of the next matmul while it waits for others before or in this record. */
function prefetchNext(plan: usize, record: i32, end: i32): void {
  const ahead = <i32>aux(layout.AHEAD_AUX);
  const next = record + ahead - 1;
  const entry = plan + <usize>next * layout.PLAN_BYTES;
  const wanted = layout.FLAG_INT8 | layout.FLAG_REPACKED;
  if (ahead === 0 || next >= end || (load<u32>(entry, layout.PLAN_FLAGS) & wanted) !== wanted) {
    workers.setPrefetch(0, 0, 1);
    return;
  }
  const here = plan + <usize>record * layout.PLAN_BYTES;
  enterRecord(entry, numOperands(opcodeAt(entry)));
  prefetchMatmul();
  enterRecord(here, numOperands(opcodeAt(here)));
}

/** Adds the time since `start` to a record. */
function lap(profile: usize, record: i32, start: f64): f64 {
  const time = now();
  const at = profile + ((<usize>record) << 3);
  store<f64>(at, load<f64>(at) + (time - start));
  return time;
}

/** The main loop of a worker: runs jobs until the host requests its exit. */
export function serve(thread: i32, numThreads: i32): void {
  workers.enterThreads(thread, numThreads);
  let generation = 0;
  for (;;) {
    const next = workers.awaitJob(generation);
    if (next < 0) return;
    // V8 does not notify a starting thread of memory growth; growing by zero pages makes it look
    if (generation === 0) {
      memory.grow(0);
      // a thread that cannot load the native kernels has said so by now: all threads see the same word
      workers.firstBarrier();
    }
    generation = next;
    runRecords(thread);
    if (workers.finishJob(generation)) {
      atomic.notify(layout.DONE, -1);
      jobDone(generation);
    }
  }
}

/** Runs the job in the control words on the calling thread alone. */
export function runAlone(): void {
  workers.enterThreads(0, 1);
  runRecords(0);
  atomic.store<i32>(layout.DONE, atomic.load<i32>(layout.GENERATION));
}

/**
 * Stores the bytes of scratch that a record needs with the scalars of the job: shared by all threads, and per thread. Leaves
 * the record and its task in the frame of thread 0, where native kernels are asked for theirs.
 */
export function measureScratch(job: usize, entry: usize, to: usize): void {
  enterJob(job, 0);
  const opcode = opcodeAt(entry);
  enterRecord(entry, numOperands(opcode));
  store<f64>(to, <f64>sharedBytesOf(opcode));
  store<f64>(to, <f64>localBytesOf(opcode), 8);
  writeTask(opcode, 0, 0, 1);
}

/** End of this module's constants, which the build checks. */
export function constantsEnd(): usize {
  return __heap_base;
}
