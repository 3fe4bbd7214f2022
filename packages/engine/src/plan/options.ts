/** The options that the memory plan of a generating model depends on, and their checks. */
import { headDimsOf, storedHeadDim, type DecoderConfig } from '@winnow/models';
import type { KvDTypes } from '@winnow/ops';
import type { AttentionSpec } from '@winnow/sparse-attention';
import { ArgumentError, type DType, type OptionNames } from '@winnow/tensor';
import type { KvTierOptions } from '../kv-offload/plan.js';
import type { TraceOptions } from '../memory/step-outputs.js';
import type { MemoryOptions } from '../weight-offload/options.js';
import type { PolicySource } from './auto-attention.js';
import { leastAttendedNames, type Eviction } from './eviction.js';
import type { Speculative } from './speculative.js';

/**
 * - `error`: the sequence that needs a block gets a `CapacityError`; the others continue.
 * - `wait`: it waits until others end or free blocks. When all of them wait, the youngest is preempted: it
 *   frees its blocks and recomputes the same tokens later.
 */
export type WhenFull = 'wait' | 'error';

/** How keys and values are stored, and where. */
export interface KvCacheOptions extends KvTierOptions {
  /**
   * The dtype of keys and values: `f32`, `f16`, `bf16`, `q8_0`, `q4_0`, ... Smaller types take less memory and lose
   * precision. Default `f32`.
   */
  readonly dtype?: DType | KvDTypes;
  /**
   * `hadamard` stores rotated keys and rotates queries to match: dot products stay the same, but 4-bit keys lose less,
   * because the rotation spreads outliers over all channels. Default `none`.
   */
  readonly rotation?: 'none' | 'hadamard';
  /**
   * Which tokens `overflow: 'evict'` drops. All choices except `oldest` accumulate attention mass in every step, which
   * computes `q . k` a second time and turns prefix sharing off. They need dense attention and no KV offload. Default
   * `oldest`.
   */
  readonly eviction?: Eviction;
  /** Capacity of the KV cache in tokens, for all sessions together. Default, and minimum: `context`. */
  readonly capacity?: number;
  /** Whether sessions reuse cached blocks of a common prefix instead of recomputing them. Default true. */
  readonly prefixSharing?: boolean;
  /**
   * What happens to a session that finds the KV cache full: `error` throws a `CapacityError`; `wait` waits until other
   * sessions end or free their blocks. Default `error`.
   */
  readonly whenFull?: WhenFull;
}

export interface PlanOptions {
  /**
   * Maximum number of tokens of one session, prompt and answer together. Default: the trained context, at most 4096.
   */
  readonly context?: number;
  /** Maximum number of open sessions. Default 8. */
  readonly maxSessions?: number;
  /** Maximum number of prompt tokens of a session in one prefill step. Default 64. */
  readonly batchSize?: number;
  /** How keys and values are stored: dtype, eviction, budget, offload. Default: in `f32`, in the backend's memory. */
  readonly kvCache?: KvCacheOptions;
  /**
   * The attention policy of the layers: an `AttentionSpec` of `@winnow/sparse-attention` or its text form, such as
   * `prefill=subquadratic:window=256;decode=sparq:rank=32,topk=128`. `auto` uses the policies that `winnow tune` found
   * for this model; without a policy file attention is dense, and a notice says so. Default `dense`.
   */
  readonly attention?: AttentionSpec | string;
  /**
   * The policy file of `attention: 'auto'`; one of another model is rejected. Default: `MODEL.policy.json` beside the
   * file or folder of the model.
   */
  readonly policyFile?: PolicySource;
  /**
   * How generations draft tokens, unless they have an option of their own. Steps are then batch-invariant: the bits of
   * a token's logits do not depend on the up to 15 others of its step, which costs some speed in steps of four tokens
   * and more. Default `off`.
   */
  readonly speculative?: Speculative;
  /** The memory budget, in bytes, or with settings for weights that do not fit. Default: what the backend can hold. */
  readonly memory?: number | MemoryOptions;
  /** Makes the inputs of layers readable for measurements; costs memory. Default: none. */
  readonly trace?: TraceOptions;
}

/** `PlanOptions` with the defaults that do not depend on the model's files. */
export interface ResolvedPlanOptions extends Omit<PlanOptions, 'kvCache' | 'attention' | 'policyFile' | 'speculative'> {
  readonly kvCache: KvCacheOptions;
  readonly attention: AttentionSpec | string;
  /** With `attention: 'auto'`: the given file or the one beside the model, which need not exist. */
  readonly policyFile: PolicySource | undefined;
  readonly speculative: Speculative;
}

export const kvCacheNames: OptionNames<KvCacheOptions> = {
  dtype: { keys: true, values: true },
  rotation: true,
  eviction: leastAttendedNames,
  capacity: true,
  budget: true,
  offload: { memory: true, folder: true },
  prefixSharing: true,
  whenFull: true,
};

/** Positions, slots and tokens are 32-bit integers. */
const maxCount = 2 ** 31 - 1;

/** @throws {ArgumentError} unless `value` is a positive integer */
export function positiveInteger(argument: string, value: number): number {
  if (Number.isSafeInteger(value) && value > 0 && value <= maxCount) return value;
  const expected = value > maxCount ? `an integer from 1 to ${maxCount}` : 'a positive integer';
  throw new ArgumentError({ argument, expected, actual: String(value) });
}

export function checkRotation(rotation: string, config: DecoderConfig): 'none' | 'hadamard' {
  const odd = headDimsOf(config).find((headDim) => headDim % 2 !== 0);
  if (rotation === 'none' || (rotation === 'hadamard' && odd === undefined)) return rotation;
  const expected = odd === undefined ? 'none | hadamard' : `none for heads of ${odd}`;
  throw new ArgumentError({ argument: 'kvCache.rotation', expected, actual: rotation });
}

/** Traces show heads as the model has them, without padding. */
export function checkTraceable(config: DecoderConfig, { keys, values }: KvDTypes): void {
  for (const headDim of headDimsOf(config)) {
    const padded = [keys, values].find((dtype) => storedHeadDim(headDim, dtype) !== headDim);
    if (padded === undefined) continue;
    const actual = `${padded}, which stores heads of ${headDim} as ${storedHeadDim(headDim, padded)}`;
    throw new ArgumentError({ argument: 'kvCache.dtype', expected: 'f32 | f16 | bf16 with trace.attention', actual });
  }
}
