/** The record that a thread executes, decoded from its words into the thread's frame. */
import * as layout from './layout.generated';

let frame: usize = 0;
let scalars: usize = 0;
let shared: usize = 0;
let local: usize = 0;
let plan: usize = 0;
let attributes: usize = 0;
/** Bytes between the rows of a sparse matrix if that is more than a row; else 0. */
let stride: usize = 0;
/** Which matrix of repacked neurons is read (see repack-neurons.ts), or -1 for rows in the layout of files. */
let matrixOfNeurons: i32 = -1;

export function enterJob(job: usize, thread: i32): void {
  frame = layout.FRAMES + <usize>thread * layout.FRAME_BYTES;
  scalars = load<u32>(job, layout.JOB_SCALARS);
  shared = load<u32>(job, layout.JOB_SHARED);
  local = load<u32>(job, layout.JOB_LOCAL) + <usize>thread * load<u32>(job, layout.JOB_LOCAL_BYTES);
}

/** Opcode of the record of a plan entry. */
export function opcodeAt(entry: usize): i32 {
  return load<i32>(load<u32>(entry, layout.PLAN_RECORD), layout.RECORD_OPCODE);
}

/** Reads the tensors of a record; `numTensors` counts the inputs and outputs of its spec. */
export function enterRecord(entry: usize, numTensors: i32): void {
  plan = entry;
  stride = 0;
  matrixOfNeurons = -1;
  let at = load<u32>(entry, layout.PLAN_RECORD) + layout.RECORD_TENSORS;
  let slot = frame;
  for (let i = 0; i < numTensors; i++, slot += layout.SLOT_BYTES) {
    const rank = load<i32>(at, layout.TENSOR_RANK_PLUS_ONE) - 1;
    store<i32>(slot, rank >= 0 ? 1 : 0, layout.SLOT_PRESENT);
    if (rank < 0) {
      at += layout.TENSOR_ABSENT_BYTES;
      continue;
    }
    store<i32>(slot, load<i32>(at, layout.TENSOR_DTYPE), layout.SLOT_DTYPE);
    store<u32>(slot, load<u32>(at, layout.TENSOR_ADDRESS_LOW), layout.SLOT_ADDRESS);
    store<i32>(slot, rank, layout.SLOT_RANK);
    at += layout.TENSOR_DIMS;
    for (let axis = 0; axis < rank; axis++, at += 4) {
      // a literal, or a scalar of the step
      const dim = load<i32>(at);
      const size = dim < 0 ? load<i32>(scalars + ((<usize>(-1 - dim)) << 2)) : dim;
      store<i32>(slot + layout.SLOT_DIMS + ((<usize>axis) << 2), size);
    }
  }
  attributes = at;
}

/** Replaces a tensor by a matrix, for ops that are composed of others; address 0 means that the tensor is absent. */
export function setMatrix(tensor: i32, dtype: i32, address: usize, numRows: i32, numColumns: i32): void {
  const slot = frame + <usize>tensor * layout.SLOT_BYTES;
  store<i32>(slot, address !== 0 ? 1 : 0, layout.SLOT_PRESENT);
  store<i32>(slot, dtype, layout.SLOT_DTYPE);
  store<u32>(slot, <u32>address, layout.SLOT_ADDRESS);
  store<i32>(slot, 2, layout.SLOT_RANK);
  store<i32>(slot, numRows, layout.SLOT_DIMS);
  store<i32>(slot, numColumns, layout.SLOT_DIMS + 4);
}
/** Sets the bytes between the rows of the sparse matrix. */
export function setRowStride(sizeBytes: usize): void {
  stride = sizeBytes;
}
/** Makes the rows of the sparse matrix those of gate (0), up (1) or down (2) of repacked neurons. */
export function setNeuronMatrix(index: i32): void {
  matrixOfNeurons = index;
}
/** The matrix that `setNeuronMatrix` selected, or -1 for rows in the layout of files. */
export function neuronMatrix(): i32 {
  return matrixOfNeurons;
}
/** Bytes between the rows of the sparse matrix. */
export function strideOf(rowBytes: usize): usize {
  return stride !== 0 ? stride : rowBytes;
}

export function isPresent(tensor: i32): bool {
  return load<i32>(frame + <usize>tensor * layout.SLOT_BYTES, layout.SLOT_PRESENT) !== 0;
}
/** GGUF number of the dtype. */
export function dtypeOf(tensor: i32): i32 {
  return load<i32>(frame + <usize>tensor * layout.SLOT_BYTES, layout.SLOT_DTYPE);
}
export function addressOf(tensor: i32): usize {
  return load<u32>(frame + <usize>tensor * layout.SLOT_BYTES, layout.SLOT_ADDRESS);
}
export function rankOf(tensor: i32): i32 {
  return load<i32>(frame + <usize>tensor * layout.SLOT_BYTES, layout.SLOT_RANK);
}
export function dim(tensor: i32, axis: i32): i32 {
  return load<i32>(frame + <usize>tensor * layout.SLOT_BYTES + layout.SLOT_DIMS + ((<usize>axis) << 2));
}
export function lastDim(tensor: i32): i32 {
  return dim(tensor, rankOf(tensor) - 1);
}
/** Product of all dims but the last. */
export function countRows(tensor: i32): i32 {
  let product = 1;
  for (let axis = rankOf(tensor) - 2; axis >= 0; axis--) product *= dim(tensor, axis);
  return product;
}
/** Address of row `row` of a tensor of 4-byte numbers. */
export function rowOf(tensor: i32, row: i32): usize {
  return addressOf(tensor) + ((<usize>row * <usize>lastDim(tensor)) << 2);
}
export function countElements(tensor: i32): i32 {
  const rank = rankOf(tensor);
  return rank === 0 ? 1 : countRows(tensor) * dim(tensor, rank - 1);
}

export function attributeI(index: i32): i32 {
  return load<i32>(attributes + ((<usize>index) << 2));
}
export function attributeF(index: i32): f32 {
  return load<f32>(attributes + ((<usize>index) << 2));
}
export function hasFlag(flag: u32): bool {
  return (load<u32>(plan, layout.PLAN_FLAGS) & flag) !== 0;
}
/** Whether the tokens of a step of this size must have the bits of steps of their own. */
export function isInvariant(numTokens: i32): bool {
  return numTokens <= layout.MAX_INVARIANT_TOKENS && hasFlag(layout.FLAG_INVARIANT);
}
/** Whether a step of this size uses GEMM: its sums in f32 have another order than those of GEMV. */
export function usesGemm(numTokens: i32): bool {
  return numTokens >= layout.MIN_PANEL_TOKENS && !isInvariant(numTokens);
}
export function aux(index: i32): usize {
  return load<u32>(plan + ((<usize>index) << 2), layout.PLAN_AUX);
}
export function setAux(index: i32, value: u32): void {
  store<u32>(plan + ((<usize>index) << 2), value, layout.PLAN_AUX);
}
/** Writes what a native kernel needs besides the operands, and returns its address. */
export function writeTask(opcode: i32, counter: usize, thread: i32, numThreads: i32): usize {
  const task = frame + layout.TASK_OFFSET;
  store<i32>(task, opcode, layout.TASK_OPCODE);
  store<u32>(task, <u32>plan, layout.TASK_PLAN);
  store<u32>(task, <u32>attributes, layout.TASK_ATTRIBUTES);
  store<u32>(task, <u32>shared, layout.TASK_SHARED);
  store<u32>(task, <u32>local, layout.TASK_LOCAL);
  store<u32>(task, <u32>counter, layout.TASK_COUNTER);
  store<i32>(task, thread, layout.TASK_THREAD);
  store<i32>(task, numThreads, layout.TASK_NUM_THREADS);
  return task;
}

/** Scratch of this record that all threads share. */
export function sharedScratch(): usize {
  return shared;
}
/** Scratch of this thread. */
export function localScratch(): usize {
  return local;
}
