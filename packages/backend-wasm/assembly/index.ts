/** The interpreter: every thread walks the same plan and takes its units of every record. */
import {
  AHEAD_AUX,
  DONE,
  FLAG_INDEPENDENT,
  FLAG_INT8,
  FLAG_REPACKED,
  GENERATION,
  JOB,
  JOB_PLAN,
  JOB_PROFILE,
  MIN_WORK,
  PLAN_BYTES,
  PLAN_FLAGS,
} from './runtime/layout.generated';
import { expectMatmul } from './gemm/int8-matmul';
import { execute, localBytesOf, numOperands, sharedBytesOf, workOf } from './runtime/dispatch.generated';
import {
  aux,
  enterJob,
  enterRecord,
  hasFlag,
  opcodeAt,
  peekMatmul,
  peekedInputs,
  peekedOutputs,
  peekedTokens,
  peekedType,
  peekedWeight,
} from './runtime/record';
import {
  awaitJob,
  enterThreads,
  finishJob,
  gather,
  nextCounter,
  recordBarrier,
  setAhead,
  setSerial,
  threads,
} from './runtime/threads';

declare function now(): f64;
declare function jobDone(generation: i32): void;

/** Whether a record is too small to be shared. */
function isSmall(opcode: i32): bool {
  return workOf(opcode) < <f64>load<i32>(MIN_WORK);
}

/** Runs records `[begin, end)` of the job in the control words; when it is cancelled on the way, says so there. */
function runRecords(thread: i32): void {
  const job = <usize>load<u32>(JOB);
  const begin = load<i32>(JOB, 4);
  const end = load<i32>(JOB, 8);
  const plan = <usize>load<u32>(job, JOB_PLAN);
  const profile = <usize>load<u32>(job, JOB_PROFILE);
  enterJob(job, thread);
  let wasSmall = false;
  let start: f64 = profile !== 0 ? now() : 0;
  for (let record = begin; record < end; record++) {
    const entry = plan + <usize>record * PLAN_BYTES;
    const opcode = opcodeAt(entry);
    enterRecord(entry, numOperands(opcode));
    // without a barrier before it, sharing costs nothing
    expectNext(plan, record, end);
    const isFree = record > begin && !wasSmall && hasFlag(FLAG_INDEPENDENT);
    const small = !isFree && isSmall(opcode);
    if (isFree) nextCounter();
    else if (record > begin && small && !wasSmall) gather();
    else if (record > begin && !small && !recordBarrier()) {
      store<i32>(JOB, 1, 12);
      return;
    }
    if (profile !== 0 && record > begin && thread === 0) start = lap(profile, record - 1, start);
    setSerial(small);
    if (!small || thread === 0) execute(opcode);
    wasSmall = small;
  }
  if (profile !== 0) {
    recordBarrier();
    if (thread === 0) lap(profile, end - 1, start);
  }
}

/** Lets this thread read weights of the next product while it waits for others before or in this record. */
function expectNext(plan: usize, record: i32, end: i32): void {
  const ahead = <i32>aux(AHEAD_AUX);
  const next = record + ahead - 1;
  const entry = plan + <usize>next * PLAN_BYTES;
  const wanted = FLAG_INT8 | FLAG_REPACKED;
  if (threads() === 1) return;
  if (ahead === 0 || next >= end || (load<u32>(entry, PLAN_FLAGS) & wanted) !== wanted) {
    setAhead(0, 0, 1);
    return;
  }
  peekMatmul(entry);
  expectMatmul(peekedTokens, peekedWeight, peekedOutputs, peekedInputs, peekedType);
}

/** Adds the time since `start` to a record. */
function lap(profile: usize, record: i32, start: f64): f64 {
  const time = now();
  const at = profile + ((<usize>record) << 3);
  store<f64>(at, load<f64>(at) + (time - start));
  return time;
}

/** A worker's whole life: jobs, one after the other, until the host wants it to leave. */
export function serve(thread: i32, numThreads: i32): void {
  enterThreads(thread, numThreads);
  let generation = 0;
  for (;;) {
    const next = awaitJob(generation);
    if (next < 0) return;
    // V8 does not tell a thread that is starting of a memory that grows meanwhile; growing by nothing makes it look
    if (generation === 0) memory.grow(0);
    generation = next;
    runRecords(thread);
    if (finishJob(generation)) {
      atomic.notify(DONE, -1);
      jobDone(generation);
    }
  }
}

/** Runs the job in the control words on the calling thread alone. */
export function runAlone(): void {
  enterThreads(0, 1);
  runRecords(0);
  atomic.store<i32>(DONE, atomic.load<i32>(GENERATION));
}

/** Stores the bytes of scratch that a record needs at the sizes in the scalars of the job: for all threads, and for each. */
export function measureScratch(job: usize, entry: usize, to: usize): void {
  enterJob(job, 0);
  const opcode = opcodeAt(entry);
  enterRecord(entry, numOperands(opcode));
  store<f64>(to, <f64>sharedBytesOf(opcode));
  store<f64>(to, <f64>localBytesOf(opcode), 8);
}

/** End of this module's constants, for a check when it is built. */
export function constantsEnd(): usize {
  return __heap_base;
}
