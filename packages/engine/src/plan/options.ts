/** The options that the memory plan of a generating model depends on, and their checks. */
import { storedHeadDim, type DecoderConfig } from '@winnow/models';
import { cacheDTypes } from '@winnow/ops';
import type { AttentionSpec } from '@winnow/sparse-attention';
import { ArgumentError, type DType } from '@winnow/tensor';
import type { KvTierOptions } from '../kv-offload/plan.js';
import type { Eviction } from './eviction.js';

/** The dtypes of the KV cache. */
export interface KvDTypes {
  readonly keys: DType;
  readonly values: DType;
}

export interface PlanOptions {
  /** Maximum number of tokens of one session, prompt and answer together. Default: the trained context, at most 4096. */
  readonly contextSize?: number;
  /** Maximum number of open sessions. Default 8. */
  readonly maxSessions?: number;
  /** Tokens that the KV cache holds for all sessions together. Default, and minimum: `contextSize`. */
  readonly cacheSize?: number;
  /** Maximum number of prompt tokens of a session in one prefill step. Default 64. */
  readonly batchSize?: number;
  /** The dtype of the KV cache. Default `f32`. */
  readonly kvDType?: DType | KvDTypes;
  /**
   * `hadamard` stores rotated keys and rotates queries to match: dot products stay the same, but 4-bit keys lose less,
   * because the rotation spreads outliers over all channels. Default `none`.
   */
  readonly kvRotation?: 'none' | 'hadamard';
  /**
   * Which tokens `overflow: 'evict'` drops. All choices but `oldest` accumulate attention mass in every step, which computes
   * `q . k` a second time and turns prefix sharing off. They need dense attention and no KV offload. Default `oldest`.
   */
  readonly eviction?: Eviction;
  /**
   * Budgets of the KV cache tiers, for contexts that do not fit into the backend's memory. Attention streams offloaded pages
   * in chunks, in each step; results are equal within rounding. Default: the whole cache in the backend's memory.
   */
  readonly kv?: KvTierOptions;
  /**
   * The attention policy of the layers: an `AttentionSpec` of `@winnow/sparse-attention` or its text form, such as
   * `prefill=subquadratic:window=256;decode=sparq:rank=32,topk=128`. Default `dense`.
   */
  readonly attention?: AttentionSpec | string;
  /**
   * Total memory budget in bytes: weights, KV cache and scratch. Experts, or neurons with `sparse`, that do not fit stay in
   * the file until a step needs them. Default, and at most: what the backend can hold.
   */
  readonly memoryLimitBytes?: number;
  /** Make the attention inputs of every layer readable by `logprobs` (`onAttention`); costs memory. Default false. */
  readonly traceAttention?: boolean;
}

/** @throws {ArgumentError} unless `value` is a positive integer */
export function positiveInteger(argument: string, value: number): number {
  if (Number.isSafeInteger(value) && value > 0) return value;
  throw new ArgumentError({ argument, expected: 'a positive integer', actual: String(value) });
}

export function checkKvDTypes(option: DType | KvDTypes): KvDTypes {
  const chosen = typeof option === 'string' ? { keys: option, values: option } : option;
  for (const dtype of [chosen.keys, chosen.values]) {
    if (cacheDTypes.includes(dtype)) continue;
    throw new ArgumentError({ argument: 'kvDType', expected: cacheDTypes.join(' | '), actual: String(dtype) });
  }
  return chosen;
}

export function checkRotation(rotation: string, headDim: number): 'none' | 'hadamard' {
  if (rotation === 'none' || (rotation === 'hadamard' && headDim % 2 === 0)) return rotation;
  const expected = headDim % 2 === 0 ? 'none | hadamard' : `none for heads of ${headDim}`;
  throw new ArgumentError({ argument: 'kvRotation', expected, actual: rotation });
}

/** Traces show heads as the model has them, without padding. */
export function checkTraceable({ headDim }: DecoderConfig, { keys, values }: KvDTypes): void {
  const padded = [keys, values].find((dtype) => storedHeadDim(headDim, dtype) !== headDim);
  if (padded === undefined) return;
  const actual = `${padded}, which stores heads of ${headDim} as ${storedHeadDim(headDim, padded)}`;
  throw new ArgumentError({ argument: 'kvDType', expected: 'f32 | f16 | bf16 with traceAttention', actual });
}
