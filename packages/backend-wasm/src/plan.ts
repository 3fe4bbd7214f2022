/** What kernels need besides their records: flags, tables and scratch, sized for the capacities of the symbols. */
import { arenaBufferIndex, type OpRecord, type Program, type TensorRef } from '@winnow/ops';
import { withFree } from './free-records.js';
import { planFlags } from './layout.generated.js';
import { isInt8Matmul, isInt8Sparse, keyOf, packedRefOf, type PackedTensor } from './packing.js';
import { capacityOf, product } from './record-shapes.js';
import { localNeuronBytes, sharedNeuronBytes } from './neuron-scratch.js';
import { sharedSparseBytes, sparseScratchBytes } from './sparse-scratch.js';

/** What `assembly/ops/matmul.ts` and `attention.ts` call MC, KC, NC, LANES, CHUNK, MAX_SPLIT_TOKENS and MAX_PARTS. */
const panelRows = 32;
const panelColumns = 512;
const passTokens = 256;
const lanes = 64;
const chunk = 64;
const maxSplitTokens = 8;
const maxParts = 16;
/** NC of `assembly/ops/expert-matmul.ts`, UNIT of `short-conv.ts`, ROWS of `gated-delta.ts`. */
const expertPassPairs = 64;
const convChannels = 256;
const deltaRows = 32;

export interface RecordPlan {
  readonly flags: number;
  /** Index of the table that the record uses, or -1. */
  readonly table: number;
}

export interface Plan {
  readonly records: readonly RecordPlan[];
  /** Weights whose rows have to be interleaved. */
  readonly packed: readonly PackedTensor[];
  /** Bytes of each table. */
  readonly tables: readonly number[];
  /** Bytes of scratch that all threads see. */
  readonly sharedBytes: number;
  /** Bytes of scratch per thread. */
  readonly localBytes: number;
}

/**
 * @param packable the weights to interleave, of `packableTensors`
 * @param packs whether activations may be 8-bit integers
 * @param starts records that find nothing of the one before: other ops ran in between
 */
export function planProgram(
  program: Program,
  packable: ReadonlyMap<string, PackedTensor>,
  packs: boolean,
  starts: ReadonlySet<number> = new Set(),
): Plan {
  const packed = new Map<string, PackedTensor>();
  for (const record of program.records) {
    const ref = packedRefOf(record);
    const tensor = ref === undefined ? undefined : packable.get(keyOf(ref));
    if (ref !== undefined && tensor !== undefined) packed.set(keyOf(ref), tensor);
  }
  const tables: number[] = [];
  const ropeTables = new Map<string, number>();
  let sharedBytes = 0;
  let localBytes = 0;
  const records = program.records.map((record, index): RecordPlan => {
    sharedBytes = Math.max(sharedBytes, sharedBytesOf(program, record));
    localBytes = Math.max(localBytes, localBytesOf(program, record));
    if (packs && isInt8Sparse(record)) {
      const reuses = !starts.has(index) && reusesCodes(program.records[index - 1], record);
      const ref = packedRefOf(record);
      const isPacked = ref !== undefined && packed.has(keyOf(ref)) ? planFlags.repacked : 0;
      return { flags: planFlags.int8 | isPacked | (reuses ? planFlags.reuse : 0), table: -1 };
    }
    if (record.op !== 'rope') {
      return { flags: packingFlags(program, index, packed, starts.has(index)), table: -1 };
    }
    const { positions, frequencies } = record.inputs as Record<'positions' | 'frequencies', TensorRef>;
    const isFixed = positions.buffer !== arenaBufferIndex && frequencies.buffer !== arenaBufferIndex;
    const key = JSON.stringify([placeOf(positions), placeOf(frequencies), record.attributes['amplitude']]);
    const known = isFixed ? ropeTables.get(key) : undefined;
    if (known !== undefined) return { flags: planFlags.reuse, table: known };
    const [numTokens] = capacityOf(program, positions) as [number];
    const [numPairs] = capacityOf(program, frequencies) as [number];
    tables.push(numTokens * numPairs * 16);
    ropeTables.set(key, tables.length - 1);
    return { flags: 0, table: tables.length - 1 };
  });
  return {
    records: withFree(program, records, starts),
    packed: [...packed.values()],
    tables,
    sharedBytes,
    localBytes: align(localBytes),
  };
}

function packingFlags(
  { records }: Program,
  index: number,
  packed: ReadonlyMap<string, PackedTensor>,
  isStart: boolean,
): number {
  const record = records[index] as OpRecord;
  const ref = packedRefOf(record);
  if (ref === undefined || !packed.has(keyOf(ref))) return 0;
  if (!isInt8Matmul(record)) return planFlags.repacked;
  // the codes of the activations are still in the scratch when the record before had the same ones
  const before = isStart ? undefined : records[index - 1];
  const beforeRef = before === undefined ? undefined : packedRefOf(before);
  const reuses =
    before !== undefined &&
    isInt8Matmul(before) &&
    beforeRef !== undefined &&
    packed.has(keyOf(beforeRef)) &&
    JSON.stringify(placeOf(before.inputs['x'] as TensorRef)) ===
      JSON.stringify(placeOf(record.inputs['x'] as TensorRef));
  return planFlags.int8 | planFlags.repacked | (reuses ? planFlags.reuse : 0);
}

/** Whether the record before made 8-bit integers of the same activations, for chosen rows as this one. */
function reusesCodes(before: OpRecord | undefined, record: OpRecord): boolean {
  return (
    before?.op === 'sparse-matmul' &&
    record.op === 'sparse-matmul' &&
    isInt8Sparse(before) &&
    JSON.stringify(placeOf(before.inputs['x'] as TensorRef)) ===
      JSON.stringify(placeOf(record.inputs['x'] as TensorRef))
  );
}

function placeOf({ buffer, byteOffset, shape }: TensorRef): unknown {
  return [buffer, byteOffset, shape];
}

function align(sizeBytes: number): number {
  return Math.ceil(sizeBytes / 64) * 64;
}

function sharedBytesOf(program: Program, record: OpRecord): number {
  const { op, inputs, outputs, attributes } = record;
  if (op === 'matmul') {
    const [numTokens, numInputs] = capacityOf(program, inputs['x'] as TensorRef) as [number, number];
    return Math.ceil(numTokens / 8) * 8 * numInputs * 4 + 256;
  }
  if (op === 'attention') {
    const [numTokens, numHeads, valueDim] = capacityOf(program, outputs['y'] as TensorRef) as [number, number, number];
    return maxParts * Math.min(numTokens, maxSplitTokens) * numHeads * (valueDim + 2) * 4;
  }
  if (op === 'expert-matmul') {
    const [numTokens, rowsPerToken, numInputs] = capacityOf(program, inputs['x'] as TensorRef) as number[];
    return numTokens * rowsPerToken * numInputs * 4 + 256;
  }
  if (op === 'gated-delta') {
    const [numTokens, numHeads] = capacityOf(program, outputs['y'] as TensorRef) as number[];
    const keyDim = capacityOf(program, outputs['state'] as TensorRef)[3] as number;
    return numTokens * 4 * (2 * Number(attributes['numKeyHeads']) * keyDim + 2 * numHeads);
  }
  if (op === 'h2o-attention') return sharedSparseBytes(program, record);
  return sharedNeuronBytes(program, record);
}

function localBytesOf(program: Program, record: OpRecord): number {
  const { op, inputs } = record;
  if (op === 'matmul') {
    const [, numInputs] = capacityOf(program, inputs['weight'] as TensorRef) as [number, number];
    const sums = panelRows * Math.ceil(passTokens / 8) * 8 * 4;
    return Math.max(4 * numInputs * 4, panelRows * 4 + panelRows * panelColumns * 4 + sums);
  }
  if (op === 'embedding-lookup') return 4 * (capacityOf(program, inputs['table'] as TensorRef)[1] as number);
  if (op === 'attention' || op === 'attention-partial') {
    const headDim = capacityOf(program, inputs['q'] as TensorRef)[2] as number;
    const valueDim = Math.ceil((capacityOf(program, inputs['values'] as TensorRef)[3] as number) / 8) * 8;
    const perLane = lanes * (headDim + valueDim + 3) * 4;
    return perLane + (chunk + 8) * 32 + chunk * (headDim + valueDim) * 4 + 64 * (headDim + valueDim + 1);
  }
  if (op === 'expert-route') return 8 * (capacityOf(program, inputs['logits'] as TensorRef)[1] as number) + 32;
  if (op === 'expert-matmul') {
    const [numSlots, , numInputs] = capacityOf(program, inputs['weight'] as TensorRef) as number[];
    const { slots } = inputs;
    const numExperts = slots === undefined ? numSlots : (capacityOf(program, slots)[0] as number);
    const tables = 4 * (2 * numExperts + 1 + product(capacityOf(program, inputs['ids'] as TensorRef))) + 64;
    const sums = panelRows * expertPassPairs * 4;
    const floats = Math.max(4 * numInputs * 4, panelRows * panelColumns * 4) + panelColumns * 32;
    const integers = (panelRows / 4) * (panelColumns / 32) * 160 + expertPassPairs * panelColumns * 3;
    return tables + sums + panelRows * 4 + 64 + Math.max(floats, integers);
  }
  if (op === 'short-conv') {
    const numTaps = capacityOf(program, inputs['weight'] as TensorRef)[1] as number;
    return convChannels * 4 * (numTaps + 1);
  }
  if (op === 'gated-delta') return deltaRows * 4;
  return localNeuronBytes(program, record) || sparseScratchBytes(program, record);
}
