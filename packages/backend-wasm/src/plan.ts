/** What kernels need besides their records: flags, tables and scratch, sized for the capacities of the symbols. */
import { arenaBufferIndex, type OpRecord, type Program, type TensorRef } from '@winnow/ops';
import { planFlags } from './layout.js';
import { capacityOf } from './record-shapes.js';

/** What `assembly/ops/matmul.ts` and `attention.ts` call MC, KC, NC, LANES, CHUNK, MAX_SPLIT_TOKENS and MAX_PARTS. */
const panelRows = 32;
const panelColumns = 512;
const passTokens = 256;
const lanes = 64;
const chunk = 64;
const maxSplitTokens = 8;
const maxParts = 16;

export interface RecordPlan {
  readonly flags: number;
  /** Index of the table that the record uses, or -1. */
  readonly table: number;
}

export interface Plan {
  readonly records: readonly RecordPlan[];
  /** Bytes of each table. */
  readonly tables: readonly number[];
  /** Bytes of scratch that all threads see. */
  readonly sharedBytes: number;
  /** Bytes of scratch per thread. */
  readonly localBytes: number;
}

export function planProgram(program: Program): Plan {
  const tables: number[] = [];
  const ropeTables = new Map<string, number>();
  let sharedBytes = 0;
  let localBytes = 0;
  const records = program.records.map((record): RecordPlan => {
    sharedBytes = Math.max(sharedBytes, sharedBytesOf(program, record));
    localBytes = Math.max(localBytes, localBytesOf(program, record));
    if (record.op !== 'rope') return { flags: 0, table: -1 };
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
  return { records, tables, sharedBytes, localBytes: align(localBytes) };
}

function placeOf({ buffer, byteOffset, shape }: TensorRef): unknown {
  return [buffer, byteOffset, shape];
}

function align(sizeBytes: number): number {
  return Math.ceil(sizeBytes / 64) * 64;
}

function sharedBytesOf(program: Program, { op, inputs, outputs }: OpRecord): number {
  if (op === 'matmul') {
    const [numTokens, numInputs] = capacityOf(program, inputs['x'] as TensorRef) as [number, number];
    return Math.ceil(numTokens / 8) * 8 * numInputs * 4;
  }
  if (op === 'attention') {
    const [numTokens, numHeads, valueDim] = capacityOf(program, outputs['y'] as TensorRef) as [number, number, number];
    return maxParts * Math.min(numTokens, maxSplitTokens) * numHeads * (valueDim + 2) * 4;
  }
  return 0;
}

function localBytesOf(program: Program, { op, inputs }: OpRecord): number {
  if (op === 'matmul') {
    const [, numInputs] = capacityOf(program, inputs['weight'] as TensorRef) as [number, number];
    const sums = panelRows * Math.ceil(passTokens / 8) * 8 * 4;
    return Math.max(4 * numInputs * 4, panelRows * panelColumns * 4 + sums);
  }
  if (op === 'attention' || op === 'attention-partial') {
    const headDim = capacityOf(program, inputs['q'] as TensorRef)[2] as number;
    const valueDim = Math.ceil((capacityOf(program, inputs['values'] as TensorRef)[3] as number) / 4) * 4;
    const perLane = lanes * (headDim + valueDim + 3) * 4;
    return perLane + (chunk + 4) * 32 + chunk * (headDim + valueDim) * 4 + 64 * (headDim + valueDim + 1);
  }
  return 0;
}
