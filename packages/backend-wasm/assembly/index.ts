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
import { activeNeurons, gatherColumns } from './ops/active-neurons';
import { attention, attentionPartial } from './ops/attention';
import { attentionMass } from './ops/attention-mass';
import { attentionFinish, attentionMerge } from './ops/attention-states';
import { multiply, scale, scaleRows, sliceColumns } from './ops/elementwise';
import { embeddingLookup } from './ops/embedding-lookup';
import { expertMatmul } from './ops/expert-matmul';
import { expertCombine, expertRoute } from './ops/expert-route';
import { gatedDelta } from './ops/gated-delta';
import { h2oAttention } from './ops/h2o-attention';
import { hadamard } from './ops/hadamard';
import { matmul } from './ops/matmul';
import { expectMatmul } from './gemm/int8-matmul';
import { layerNorm, rmsNorm } from './ops/norms';
import { activation, add, gatedActivation, softCap } from './ops/pointwise';
import { oracleTopKAttention } from './ops/oracle-topk-attention';
import { pageTopKAttention } from './ops/page-topk-attention';
import { argMax, logSumExp, softmax } from './ops/reductions';
import { poolRows } from './ops/pool-rows';
import { PROBE_F32, PROBE_INT8, PROBE_READ, PROBE_TOUCH, probe } from './ops/probe';
import { rope } from './ops/rope';
import { gatherRows, kvAppend, positionAppend, scatterRows } from './ops/rows';
import { shortConv } from './ops/short-conv';
import { sparqAttention } from './ops/sparq-attention';
import { sparseCombine } from './ops/sparse-combine';
import { sparseFeedForward } from './ops/sparse-feed-forward';
import { sparseMatmul } from './ops/sparse-matmul';
import { streamingAttention } from './ops/streaming-attention';
import { subquadraticAttention } from './ops/subquadratic-attention';
import { blockBoxAppend, blockMeanAppend, clampPositions, keyColumnsAppend, stateCarry } from './ops/summaries';
import { topK } from './ops/top-k';
import { PACK, PACK_NEURONS, UNPACK, UNPACK_NEURONS, numTensors } from './runtime/opcodes';
import { packNeurons, unpackNeurons } from './ffn/repack-neurons';
import { packWeights, unpackWeights } from './gemm/repack';
import {
  attributeI,
  aux,
  countElements,
  dim,
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
  let work: f64;
  switch (opcode) {
    case 3:
      work = 0.25 * <f64>dim(0, 0) * <f64>dim(1, 0) * <f64>dim(1, 1);
      break;
    case 11:
      return true;
    case 13:
    case 14:
      // every slot that the longest sequence may use counts
      work = 0.5 * <f64>countElements(0) * <f64>dim(6, 1) * <f64>dim(3, 2);
      break;
    case 2:
    case 1:
    case 4:
    case 6:
      work = 2 * <f64>countElements(0);
      break;
    case 7:
      work = 8 * <f64>countElements(0);
      break;
    case 0:
    case 10:
      work = <f64>countElements(2);
      break;
    case 15:
      work = <f64>countElements(2);
      break;
    case 16:
      work = <f64>countElements(1);
      break;
    case 24:
      work = 4 * <f64>countElements(0);
      break;
    case 25:
      work = 0.25 * <f64>countElements(1) * <f64>dim(2, 1) * <f64>dim(2, 2);
      break;
    case 27:
      work = <f64>countElements(0) * <f64>dim(1, 1);
      break;
    case 28:
      work = <f64>countElements(9) * <f64>dim(8, 3);
      break;
    case 29:
    case 30:
    case 31:
      work = 2 * <f64>dim(0, 0) * <f64>dim(1, 1) * <f64>dim(1, 3);
      break;
    case 43:
      // most of it waits for memory
      work = 6 * <f64>countElements(0);
      break;
    case 32:
    case 40:
      return true;
    case 44:
    case 46:
      // as if all rows were chosen: how many are is not known before the record before is done
      work = 0.25 * <f64>dim(0, 0) * <f64>dim(2, 0) * <f64>dim(1, 1);
      break;
    case 47:
      work = 0.25 * <f64>dim(0, 0) * <f64>dim(2, 0) * <f64>dim(0, 1) * 3;
      break;
    case 33:
      // a window and some keys elsewhere
      work = 0.5 * <f64>countElements(0) * (<f64>attributeI(4) + 32);
      break;
    case 34:
    case 35:
    case 36:
    case 37:
    case 38:
    case 41:
      work = 0.25 * <f64>countElements(0) * <f64>dim(6, 1) * <f64>dim(3, 2);
      break;
    default:
      work = <f64>countElements(0);
  }
  return work < <f64>load<i32>(MIN_WORK);
}

function execute(opcode: i32): void {
  switch (opcode) {
    case 0:
      embeddingLookup();
      return;
    case 1:
      rmsNorm();
      return;
    case 2:
      layerNorm();
      return;
    case 3:
      matmul();
      return;
    case 4:
      rope();
      return;
    case 5:
      softmax();
      return;
    case 6:
      activation();
      return;
    case 7:
      gatedActivation();
      return;
    case 8:
      add();
      return;
    case 9:
      softCap();
      return;
    case 10:
      gatherRows();
      return;
    case 11:
      positionAppend();
      return;
    case 12:
      kvAppend();
      return;
    case 13:
      attention();
      return;
    case 14:
      attentionPartial();
      return;
    case 15:
      attentionMerge();
      return;
    case 16:
      attentionFinish();
      return;
    case 17:
      argMax();
      return;
    case 18:
      topK();
      return;
    case 19:
      logSumExp();
      return;
    case 20:
      multiply();
      return;
    case 21:
      scale();
      return;
    case 22:
      scaleRows();
      return;
    case 23:
      sliceColumns();
      return;
    case 24:
      expertRoute();
      return;
    case 25:
      expertMatmul();
      return;
    case 26:
      expertCombine();
      return;
    case 27:
      shortConv();
      return;
    case 28:
      gatedDelta();
      return;
    case 29:
      blockMeanAppend();
      return;
    case 30:
      blockBoxAppend();
      return;
    case 31:
      keyColumnsAppend();
      return;
    case 32:
      clampPositions();
      return;
    case 33:
      subquadraticAttention();
      return;
    case 34:
      streamingAttention();
      return;
    case 35:
      sparqAttention();
      return;
    case 36:
      pageTopKAttention();
      return;
    case 37:
      oracleTopKAttention();
      return;
    case 38:
      h2oAttention();
      return;
    case 39:
      poolRows();
      return;
    case 40:
      stateCarry();
      return;
    case 41:
      attentionMass();
      return;
    case 42:
      hadamard();
      return;
    case 43:
      activeNeurons();
      return;
    case 44:
      sparseMatmul();
      return;
    case 45:
      gatherColumns();
      return;
    case 46:
      sparseCombine();
      return;
    case 47:
      sparseFeedForward();
      return;
    case 48:
      scatterRows();
      return;
    case PACK:
      packWeights();
      return;
    case UNPACK:
      unpackWeights();
      return;
    case PACK_NEURONS:
      packNeurons();
      return;
    case UNPACK_NEURONS:
      unpackNeurons();
      return;
    case PROBE_TOUCH:
    case PROBE_READ:
    case PROBE_F32:
    case PROBE_INT8:
      probe(opcode);
      return;
    default:
      unreachable();
  }
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
    enterRecord(entry, numTensors(opcode));
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

/** End of this module's constants, for a check when it is built. */
export function constantsEnd(): usize {
  return __heap_base;
}
