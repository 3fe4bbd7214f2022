/** What kernels need besides their records: flags, and tables sized for the capacities of symbols. */
import { arenaBufferIndex, type OpRecord, type Program, type TensorRef } from '@winnow/ops';
import { dtypeInfo } from '@winnow/tensor';
import { traitsOf } from '../kernels/kernel-traits.js';
import { planFlags } from '../kernels/layout.generated.js';
import { capacityOf, product } from '../kernels/record-shapes.js';
import { isInt8Matmul, isInt8Sparse, keyOf, repackedRefOf, type RepackedTensor } from '../memory/repacking.js';
import { withFree } from './free-records.js';

export interface RecordPlan {
  readonly flags: number;
  /** Index of the table that the record uses, or -1. */
  readonly table: number;
}

export interface Plan {
  readonly records: readonly RecordPlan[];
  /** Weights whose rows must be interleaved. */
  readonly repacked: readonly RepackedTensor[];
  /** Bytes of each table. */
  readonly tables: readonly number[];
}

/**
 * @param repackable the weights to interleave, from `repackableTensors`
 * @param usesInt8 whether activations may be 8-bit integers
 * @param starts records that cannot reuse scratch of the previous one, because other ops run in between
 * @param isInvariant whether steps must be batch-invariant
 */
export function planProgram(
  program: Program,
  repackable: ReadonlyMap<string, RepackedTensor>,
  usesInt8: boolean,
  starts: ReadonlySet<number> = new Set(),
  isInvariant: boolean = false,
): Plan {
  const repacked = new Map<string, RepackedTensor>();
  for (const record of program.records) {
    const ref = repackedRefOf(record);
    const tensor = ref === undefined ? undefined : repackable.get(keyOf(ref));
    if (ref !== undefined && tensor !== undefined) repacked.set(keyOf(ref), tensor);
  }
  const tables: number[] = [];
  const knownTables = new Map<string, number>();
  const records = program.records.map((record, index): RecordPlan => {
    if (usesInt8 && isInt8Sparse(record)) {
      const reuses = !starts.has(index) && reusesCodes(program.records[index - 1], record);
      const ref = repackedRefOf(record);
      const isRepacked = ref !== undefined && repacked.has(keyOf(ref)) ? planFlags.repacked : 0;
      return { flags: planFlags.int8 | isRepacked | (reuses ? planFlags.reuse : 0), table: -1 };
    }
    const { table } = traitsOf(record.op);
    if (table === undefined) {
      return { flags: int8Flags(program, index, repacked, starts.has(index), isInvariant), table: -1 };
    }
    const refs = table.inputs.flatMap((name) => record.inputs[name] ?? []);
    const isFixed = refs.every(({ buffer }) => buffer !== arenaBufferIndex);
    const key = JSON.stringify([record.op, refs.map(placeOf), table.attributes.map((name) => record.attributes[name])]);
    const known = isFixed ? knownTables.get(key) : undefined;
    if (known !== undefined) return { flags: planFlags.reuse, table: known };
    const sizes = Object.entries(record.inputs).map(([name, ref]) => [name, product(capacityOf(program, ref))]);
    tables.push(table.sizeBytes(Object.fromEntries(sizes), record.attributes));
    knownTables.set(key, tables.length - 1);
    return { flags: 0, table: tables.length - 1 };
  });
  const invariant = isInvariant ? planFlags.invariant : 0;
  return {
    records: withFree(program, records, starts).map((plan) => ({ ...plan, flags: plan.flags | invariant })),
    repacked: [...repacked.values()],
    tables,
  };
}

/**
 * Adds the flag to the records of native kernels. Scratch is reused only between kernels of the same kind, because its layout
 * differs.
 */
export function withNative(records: readonly RecordPlan[], native: ReadonlySet<number>): readonly RecordPlan[] {
  if (native.size === 0) return records;
  return records.map(({ flags, table }, index) => {
    const isSame = native.has(index) === native.has(index - 1) || table >= 0;
    const kept = isSame || (flags & planFlags.reuse) === 0 ? flags : flags & ~(planFlags.reuse | planFlags.independent);
    return { flags: kept | (native.has(index) ? planFlags.native : 0), table };
  });
}

function int8Flags(
  { records }: Program,
  index: number,
  repacked: ReadonlyMap<string, RepackedTensor>,
  isStart: boolean,
  isInvariant: boolean,
): number {
  const record = records[index] as OpRecord;
  const ref = repackedRefOf(record);
  if (ref === undefined || !repacked.has(keyOf(ref))) return 0;
  if (!isInt8Matmul(record)) return planFlags.repacked;
  // the quantized activations are still in scratch if the previous record had the same ones
  const before = isStart ? undefined : records[index - 1];
  const beforeRef = before === undefined ? undefined : repackedRefOf(before);
  const reuses =
    before !== undefined &&
    isInt8Matmul(before) &&
    beforeRef !== undefined &&
    repacked.has(keyOf(beforeRef)) &&
    // batch-invariant steps read the activations of blocks and of super-blocks in different layouts
    (!isInvariant || hasSuperBlocks(before) === hasSuperBlocks(record)) &&
    JSON.stringify(placeOf(before.inputs['x'] as TensorRef)) ===
      JSON.stringify(placeOf(record.inputs['x'] as TensorRef));
  return planFlags.int8 | planFlags.repacked | (reuses ? planFlags.reuse : 0);
}

function hasSuperBlocks({ inputs }: OpRecord): boolean {
  const { dtype } = inputs['weight'] as TensorRef;
  return dtypeInfo(dtype).blockSize > 32;
}

/** Whether the previous record quantized the same activations, also for selected rows. */
function reusesCodes(before: OpRecord | undefined, record: OpRecord): boolean {
  return (
    before?.op === record.op &&
    traitsOf(record.op).sharesActivations === true &&
    isInt8Sparse(before) &&
    JSON.stringify(placeOf(before.inputs['x'] as TensorRef)) ===
      JSON.stringify(placeOf(record.inputs['x'] as TensorRef))
  );
}

function placeOf({ buffer, byteOffset, shape }: TensorRef): unknown {
  return [buffer, byteOffset, shape];
}
