/** What a model needs, known before its weights are read. */
import type { BackendLimits, Program } from '@winnow/ops';
import { CapacityError } from '@winnow/tensor';

/** Bytes by purpose. */
export interface MemoryPlan {
  readonly weightsBytes: number;
  readonly kvBytes: number;
  /** Activations and scalars of the programs. */
  readonly activationBytes: number;
  readonly totalBytes: number;
  readonly contextSize: number;
  /** Bytes of keys and values per token of context. */
  readonly kvBytesPerToken: number;
  /** Where keys and values go that `kvBytes` has no room for, with KV offload that is needed. */
  readonly tiers?: TierBudgets;
  /** Where experts or neurons are, when the limit has no room for all of them. */
  readonly weightTiers?: WeightTierBudgets;
}

/** Bytes by tier of the weights. */
export interface WeightTierBudgets {
  /** What is read from the file when it is needed. */
  readonly kind: 'expert' | 'neuron';
  /** All there are, and those that can be in the backend's memory at a time. */
  readonly numItems: number;
  readonly numSlots: number;
  /** Of those the ones that keep their places, because they were needed most often. */
  readonly numPinned: number;
  /** What is always in memory: a part of `weightsBytes`, as are the slots. */
  readonly residentBytes: number;
  readonly slotBytes: number;
  /** Memory beside the backend's: a part of `totalBytes`, as is what reads take. */
  readonly warmBytes: number;
  readonly stagingBytes: number;
  /** What has no slot: it is in the file only, or copied. */
  readonly coldBytes: number;
  /** A copy of that in 4 bits, which is read instead of the file: a part of `totalBytes`. 0 without one. */
  readonly copyBytes: number;
}

/** Bytes by tier of the cache. */
export interface TierBudgets {
  /** The pool in the backend's memory. A part of `kvBytes`, as are the chunks in which the rest is brought in. */
  readonly hotBytes: number;
  readonly chunkBytes: number;
  /** Memory beside the backend's. A part of `totalBytes`. */
  readonly warmBytes: number;
  /** What is known of pages outside the pool, for policies that choose among them. A part of `totalBytes`. */
  readonly residentBytes: number;
  /** What files hold when all sessions are full. */
  readonly coldBytes: number;
}

/** What an error of a limit that is too small for the plan names. */
export const planResource = 'memory plan';

/**
 * @param advice what else there is to know
 * @throws {CapacityError} when the plan needs more than `limitBytes`
 */
export function checkMemory(plan: MemoryPlan, limitBytes: number | undefined, advice = ''): void {
  if (limitBytes === undefined || plan.totalBytes <= limitBytes) return;
  throw new CapacityError({
    resource: planResource,
    needed: plan.totalBytes,
    available: limitBytes,
    unit: 'bytes',
    hint: `weights ${plan.weightsBytes}, kv ${plan.kvBytes} for ${plan.contextSize} tokens, activations ${plan.activationBytes}: a smaller context or kv dtype helps${advice}`,
  });
}

/** Limits of a backend that plans keep to. */
export type PlanLimits = Pick<BackendLimits, 'maxBufferBytes' | 'maxTotalBytes'>;

/** For plans that no backend has to hold. */
export const noLimits: PlanLimits = { maxBufferBytes: Infinity, maxTotalBytes: Infinity };

/** The smaller one of the caller's limit and of what the backend can hold; `undefined` without either. */
export function limitOf(limitBytes: number | undefined, { maxTotalBytes }: PlanLimits): number | undefined {
  const limit = Math.min(limitBytes ?? Infinity, maxTotalBytes);
  return Number.isFinite(limit) ? limit : undefined;
}

/** @throws {CapacityError} when a buffer of a program, or its activations, are larger than a buffer of the backend can be */
export function checkBuffers(programs: readonly Program[], { maxBufferBytes: available }: PlanLimits): void {
  for (const { name, sizeBytes: needed } of programs.flatMap(({ buffers }) => buffers)) {
    if (needed <= available) continue;
    const hint = 'the backend has no larger buffers: a smaller context, batch size or dtype helps';
    throw new CapacityError({ resource: `buffer ${name}`, needed, available, unit: 'bytes', hint });
  }
}

const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(bytes < 1e8 ? 1 : 0)} MB`;

/** What a caller should know of weights that are not all in memory. */
export function planNotices({ weightTiers, totalBytes }: MemoryPlan): string[] {
  if (weightTiers === undefined) return [];
  const { kind, numItems, numSlots, slotBytes, coldBytes, copyBytes } = weightTiers;
  const inSlots = `${numSlots} of ${numItems} ${kind}s have a place in memory (${megabytes(slotBytes)})`;
  const others = copyBytes > 0 ? 'are kept in 4 bits' : 'are read when they are needed';
  return [`${inSlots}; ${megabytes(coldBytes)} ${others}: ${megabytes(totalBytes)} in all`];
}
