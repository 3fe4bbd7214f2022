/** The memory that a model needs, known before its weights are read. */
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
  /** Tiers of the keys and values that do not fit `kvBytes`, if KV offload is needed. */
  readonly tiers?: TierBudgets;
  /** Tiers of the experts or neurons, if not all of them fit the budget. */
  readonly weightTiers?: WeightTierBudgets;
}

/** Bytes by tier of the weights. */
export interface WeightTierBudgets {
  /** The kind of item that is read from the file on demand. */
  readonly kind: 'expert' | 'neuron';
  /** Number of items, and number of slots in the backend's memory. */
  readonly numItems: number;
  readonly numSlots: number;
  /** Number of slots that are pinned to the most frequent items. */
  readonly numPinned: number;
  /** Weights that are always in memory: part of `weightsBytes`, as are the slots. */
  readonly residentBytes: number;
  readonly slotBytes: number;
  /** Memory outside the backend: part of `totalBytes`, as are read buffers. */
  readonly warmBytes: number;
  readonly stagingBytes: number;
  /** Items without a slot, which are only in the file or in the 4-bit copy. */
  readonly coldBytes: number;
  /** A 4-bit copy that is read instead of the file: part of `totalBytes`. 0 without one. */
  readonly copyBytes: number;
}

/** Bytes by tier of the cache. */
export interface TierBudgets {
  /** The pool in the backend's memory. Part of `kvBytes`, as are the staging buffers. */
  readonly hotBytes: number;
  readonly chunkBytes: number;
  /** Memory outside the backend. Part of `totalBytes`. */
  readonly warmBytes: number;
  /** Data for selecting among pages outside the pool. Part of `totalBytes`. */
  readonly residentBytes: number;
  /** Maximum size of the files, when all sessions are full. */
  readonly coldBytes: number;
}

/** The resource in errors of a budget that is too small. */
export const planResource = 'memory plan';

/**
 * @param advice appended to the hint
 * @throws {CapacityError} when the plan needs more than `limitBytes`
 */
export function checkMemory(plan: MemoryPlan, limitBytes: number, advice = ''): void {
  if (plan.totalBytes <= limitBytes) return;
  throw new CapacityError({
    resource: planResource,
    needed: plan.totalBytes,
    available: limitBytes,
    unit: 'bytes',
    hint:
      `weights ${plan.weightsBytes}, kv ${plan.kvBytes} for ${plan.contextSize} tokens, ` +
      `activations ${plan.activationBytes}; use a smaller context or kvCache.dtype${advice}`,
  });
}

/** Limits of a backend that plans respect. */
export type PlanLimits = Pick<BackendLimits, 'maxBufferBytes' | 'maxTotalBytes'>;

/**
 * Limits without a backend.
 * @param budget the caller's, in bytes
 */
export function limitsOf(budget: number | undefined): PlanLimits {
  return { maxBufferBytes: Infinity, maxTotalBytes: budget ?? Infinity };
}

/**
 * The limits of a backend within the caller's budget.
 * @param hostBytes memory of the machine, for backends that know no limit; undefined where the host does not tell
 */
export function limitsOn(limits: PlanLimits, hostBytes: number | undefined, budget: number | undefined): PlanLimits {
  const { maxBufferBytes, maxTotalBytes } = limits;
  const availableBytes = maxTotalBytes === Infinity ? (hostBytes ?? Infinity) : maxTotalBytes;
  return { maxBufferBytes, maxTotalBytes: Math.min(budget ?? Infinity, availableBytes) };
}

/**
 * @throws {CapacityError} when a buffer of a program, or its activations, exceed the maximum buffer size of the backend
 */
export function checkBuffers(programs: readonly Program[], { maxBufferBytes: available }: PlanLimits): void {
  for (const { name, sizeBytes: needed } of programs.flatMap(({ buffers }) => buffers)) {
    if (needed <= available) continue;
    const hint = 'the backend does not support larger buffers; use a smaller context, batch size or dtype';
    throw new CapacityError({ resource: `buffer ${name}`, needed, available, unit: 'bytes', hint });
  }
}

const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(bytes < 1e8 ? 1 : 0)} MB`;

/** Notices about weights that are not all in memory. */
export function planNotices({ weightTiers, totalBytes }: MemoryPlan): string[] {
  if (weightTiers === undefined) return [];
  const { kind, numItems, numSlots, slotBytes, coldBytes, copyBytes } = weightTiers;
  const inSlots = `${numSlots} of ${numItems} ${kind}s fit in memory (${megabytes(slotBytes)})`;
  const others = copyBytes > 0 ? 'are kept in 4 bits' : 'are read on demand';
  return [`${inSlots}; ${megabytes(coldBytes)} ${others}: ${megabytes(totalBytes)} in total`];
}
