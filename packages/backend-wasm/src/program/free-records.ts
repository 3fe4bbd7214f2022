/**
 * Records that need no barrier before them: GEMMs with the same activations, such as query, key and value, and GEMMs with so
 * few activations that every thread quantizes them redundantly. A thread that has finished one proceeds to the next.
 */
import type { OpRecord, Program, TensorRef } from '@winnow/ops';
import { tensorBytes } from '@winnow/tensor';
import { traitsOf } from '../kernels/kernel-traits.js';
import { maxOwnCodes, minPanelTokens, numCounters, planFlags } from '../kernels/layout.generated.js';
import { capacityOf } from '../kernels/record-shapes.js';

/**
 * Adds the flag to eligible records.
 * @param starts records that are never eligible
 */
export function withFree<Plan extends { readonly flags: number }>(
  program: Program,
  plans: readonly Plan[],
  starts: ReadonlySet<number>,
): Plan[] {
  let group: OpRecord[] = [];
  return program.records.map((record, index) => {
    const plan = plans[index] as Plan;
    const [before] = group;
    const isFree =
      before !== undefined &&
      !starts.has(index) &&
      group.length < numCounters &&
      (sharesActivations(before, record, (plans[index - 1] as Plan).flags, plan.flags) ||
        [before, record].every((other, i) =>
          quantizesRedundantly(program, other, (plans[index - 1 + i] as Plan).flags),
        )) &&
      group.every((other) => isApart(program, other, record));
    group = isFree ? [...group, record] : [record];
    return isFree ? { ...plan, flags: plan.flags | planFlags.independent } : plan;
  });
}

/** Whether both are GEMMs that read the same x in the same way, so that they can share scratch. */
function sharesActivations(a: OpRecord, b: OpRecord, flagsOfA: number, flagsOfB: number): boolean {
  if (a.op !== b.op || traitsOf(a.op).sharesActivations !== true) return false;
  if ((flagsOfA & planFlags.int8) !== (flagsOfB & planFlags.int8)) return false;
  if ((flagsOfB & planFlags.int8) !== 0 && (flagsOfB & planFlags.reuse) === 0) return false;
  const [x, y] = [a.inputs['x'] as TensorRef, b.inputs['x'] as TensorRef];
  return x.buffer === y.buffer && x.byteOffset === y.byteOffset && x.shape.join() === y.shape.join();
}

/** Whether it is a GEMM whose 8-bit activations every thread quantizes redundantly. */
function quantizesRedundantly(program: Program, { op, inputs }: OpRecord, flags: number): boolean {
  if (traitsOf(op).quantizesRedundantly !== true || (flags & planFlags.int8) === 0) return false;
  const [numTokens = 0, numInputs = 0] = capacityOf(program, inputs['x'] as TensorRef);
  return numTokens < minPanelTokens && numTokens * numInputs <= maxOwnCodes;
}

/** Whether neither record writes what the other reads or writes. */
function isApart(program: Program, a: OpRecord, b: OpRecord): boolean {
  const touches = (one: OpRecord, other: OpRecord): boolean =>
    Object.values(one.outputs).some((written) =>
      [...Object.values(other.inputs), ...Object.values(other.outputs)].some((ref) => overlaps(program, written, ref)),
    );
  return !touches(a, b) && !touches(b, a);
}

function overlaps(program: Program, a: TensorRef, b: TensorRef): boolean {
  const end = (ref: TensorRef): number => ref.byteOffset + tensorBytes(ref.dtype, capacityOf(program, ref));
  return a.buffer === b.buffer && a.byteOffset < end(b) && b.byteOffset < end(a);
}

/** How many records to look ahead for GEMMs. */
const maxAhead = 16;

/**
 * Distance plus one to the next GEMM of 8-bit activations with repacked weights, which waiting threads prefetch; 0 when
 * none is near.
 */
export function aheadOf(program: Program, plans: readonly { readonly flags: number }[], index: number): number {
  const wanted = planFlags.int8 | planFlags.repacked;
  const end = Math.min(plans.length, index + maxAhead);
  for (let next = index; next < end; next++) {
    const { op, inputs } = program.records[next] as OpRecord;
    const { streamsWeights, isPrefetched } = traitsOf(op);
    if (next > index && streamsWeights === true) return 0;
    if (isPrefetched !== true || ((plans[next] as { flags: number }).flags & wanted) !== wanted) continue;
    return ['x', 'weight'].every((name) => inputs[name]?.shape.length === 2) ? next - index + 1 : 0;
  }
  return 0;
}
