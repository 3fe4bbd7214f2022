/** The interpreter: every thread walks the same plan and takes its units of every record. */
import {
  DONE,
  FLAG_FREE,
  GENERATION,
  JOB,
  JOB_PLAN,
  JOB_PROFILE,
  MIN_WORK,
  PLAN_BYTES,
} from './layout';
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
import { layerNorm, rmsNorm } from './ops/norms';
import { activation, add, gatedActivation, softCap } from './ops/pointwise';
import { oracleTopKAttention } from './ops/oracle-topk-attention';
import { pageTopKAttention } from './ops/page-topk-attention';
import { argMax, logSumExp, softmax } from './ops/reductions';
import { poolRows } from './ops/pool-rows';
import { PROBE_F32, PROBE_INT8, PROBE_READ, PROBE_TOUCH, probe } from './ops/probe';
import { rope } from './ops/rope';
import { gatherRows, kvAppend, positionAppend } from './ops/rows';
import { shortConv } from './ops/short-conv';
import { sparqAttention } from './ops/sparq-attention';
import { sparseCombine } from './ops/sparse-combine';
import { sparseMatmul } from './ops/sparse-matmul';
import { streamingAttention } from './ops/streaming-attention';
import { subquadraticAttention } from './ops/subquadratic-attention';
import { blockBoxAppend, blockMeanAppend, clampPositions, keyColumnsAppend, stateCarry } from './ops/summaries';
import { topK } from './ops/top-k';
import { packWeights, unpackWeights } from './pack';
import { attributeI, countElements, dim, enterJob, enterRecord, hasFlag, opcodeAt } from './record';
import { awaitJob, enterThreads, finishJob, gather, nextCounter, recordBarrier, setSerial } from './threads';

declare function now(): f64;
declare function jobDone(generation: i32): void;

// jobs of the backend itself, beyond the ops
const PACK: i32 = 1000;
const UNPACK: i32 = 1001;

/** Inputs and outputs of each op, in the order of the opcodes. */
function numTensors(opcode: i32): i32 {
  switch (opcode) {
    case 0:
      return 3; // embedding-lookup
    case 1:
      return 3; // rms-norm
    case 2:
      return 4; // layer-norm
    case 3:
      return 4; // matmul
    case 4:
      return 4; // rope
    case 5:
      return 2; // softmax
    case 6:
      return 3; // activation
    case 7:
      return 4; // gated-activation
    case 8:
      return 3; // add
    case 9:
      return 2; // soft-cap
    case 10:
    case 11:
      return 3; // gather-rows, position-append
    case 12:
      return 5; // kv-append
    case 13:
      return 9; // attention
    case 14:
      return 11; // attention-partial
    case 15:
      return 9; // attention-merge
    case 16:
      return 3; // attention-finish
    case 17:
      return 2; // arg-max
    case 18:
      return 3; // top-k
    case 19:
      return 2; // log-sum-exp
    case 20:
      return 3; // multiply
    case 21:
      return 2; // scale
    case 22:
      return 3; // scale-rows
    case 23:
      return 2; // slice-columns
    case 24:
      return 4; // expert-route
    case 25:
      return 5; // expert-matmul
    case 26:
      return 3; // expert-combine
    case 27:
      return 7; // short-conv
    case 28:
      return 10; // gated-delta
    case 29:
      return 6; // block-mean-append
    case 30:
      return 7; // block-box-append
    case 31:
      return 3; // key-columns-append
    case 32:
      return 2; // clamp-positions
    case 33:
      return 14; // subquadratic-attention
    case 34:
      return 12; // streaming-attention
    case 35:
      return 15; // sparq-attention
    case 36:
      return 18; // page-topk-attention
    case 37:
      return 11; // oracle-topk-attention
    case 38:
      return 17; // h2o-attention
    case 39:
      return 4; // pool-rows
    case 40:
      return 4; // state-carry
    case 41:
      return 10; // attention-mass
    case 42:
      return 2; // hadamard
    case 43:
      return 4; // active-neurons
    case 44:
      return 7; // sparse-matmul
    case 45:
      return 4; // gather-columns
    case 46:
      return 5; // sparse-combine
    case PACK:
    case UNPACK:
    case PROBE_TOUCH:
    case PROBE_READ:
    case PROBE_F32:
    case PROBE_INT8:
      return 1;
    default:
      return unreachable();
  }
}

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
    case 32:
    case 40:
      return true;
    case 44:
    case 46:
      // as if all rows were chosen: how many are is not known before the record before is done
      work = 0.25 * <f64>dim(0, 0) * <f64>dim(2, 0) * <f64>dim(1, 1);
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
    case PACK:
      packWeights();
      return;
    case UNPACK:
      unpackWeights();
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
  let start: f64 = profile != 0 ? now() : 0;
  for (let record = begin; record < end; record++) {
    const entry = plan + <usize>record * PLAN_BYTES;
    const opcode = opcodeAt(entry);
    enterRecord(entry, numTensors(opcode));
    // without a barrier before it, sharing costs nothing
    const isFree = record > begin && !wasSmall && hasFlag(FLAG_FREE);
    const small = !isFree && isSmall(opcode);
    if (isFree) nextCounter();
    else if (record > begin && small && !wasSmall) gather();
    else if (record > begin && !small && !recordBarrier()) {
      store<i32>(JOB, 1, 12);
      return;
    }
    if (profile != 0 && record > begin && thread == 0) start = lap(profile, record - 1, start);
    setSerial(small);
    if (!small || thread == 0) execute(opcode);
    wasSmall = small;
  }
  if (profile != 0) {
    recordBarrier();
    if (thread == 0) lap(profile, end - 1, start);
  }
}

/** Adds the time since `start` to a record. */
function lap(profile: usize, record: i32, start: f64): f64 {
  const time = now();
  const at = profile + (<usize>record << 3);
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
    if (generation == 0) memory.grow(0);
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
