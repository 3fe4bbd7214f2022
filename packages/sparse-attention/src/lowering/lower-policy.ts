/** Lowers the policy of one layer and phase to an op. */
import {
  lowerDenseAttention,
  type Attributes,
  type LayerAttention,
  type ProgramBuilder,
  type ProgramTensor,
} from '@winnow/ops';
import { ArgumentError } from '@winnow/tensor';
import { clampBudgets } from '../policy/costs.js';
import { deltaOf } from '../policy/fields.js';
import type { AttentionPolicy, PageTopKPolicy, StreamingPolicy, VerifiedTopKPolicy } from '../policy/kinds.js';
import { twoSidedQuantile } from '../policy/normal-quantile.js';
import { checkDeltaCausal, correctOutputs } from './delta-lowering.js';
import { lowerH2o } from './h2o-lowering.js';
import { boxesOf, columnsOf, meanSizeOf, meansOf, sparqMeanSize } from './side-data.js';
import { subquadraticAttributes } from './subquadratic.js';

/** What a lowering depends on besides the policy. */
export interface LowerPolicyOptions {
  /** All policies of the layer, which share side data. */
  readonly policies: readonly AttentionPolicy[];
  /** Receives a sentence about each change to a policy. */
  readonly notice: (text: string) => void;
  /** Allow `h2o-prefill` budgets of a chunk or more. Default: they are clamped. */
  readonly allowsLargeMemory?: boolean | undefined;
  /** Default: true. Bidirectional attention: dense, subquadratic and oracle-topk only. */
  readonly causal?: boolean | undefined;
}

/** Policies whose ops support learned sinks. */
const sinkKinds: readonly string[] = ['dense', 'streaming', 'page-topk'];

/** @throws {ArgumentError} for learned sinks under a policy whose op does not support them */
function checkSinks(policy: AttentionPolicy, { sinkLogits }: LayerAttention): void {
  const delta = deltaOf(policy);
  if (sinkLogits === undefined || (sinkKinds.includes(policy.kind) && delta === 0)) return;
  const expected = `${sinkKinds.join(' | ')}, without delta`;
  const actual = delta === 0 ? policy.kind : `${policy.kind} with a delta of ${delta}`;
  throw new ArgumentError({ argument: 'attention of a model with learned sinks', expected, actual });
}

/** @throws {ArgumentError} for windows that are chunks under a policy other than dense */
function checkChunked(policy: AttentionPolicy, { chunked }: LayerAttention): void {
  if (chunked !== true || policy.kind === 'dense') return;
  throw new ArgumentError({ argument: 'attention of a layer with chunks', expected: 'dense', actual: policy.kind });
}

/** @throws {ArgumentError} for biases by relative position under a policy other than dense attention */
function checkBiases({ kind }: AttentionPolicy, { positionBias }: LayerAttention): void {
  if (positionBias === undefined || kind === 'dense') return;
  const argument = 'attention of a model with biases by relative position';
  throw new ArgumentError({ argument, expected: 'dense', actual: kind });
}

/** The outputs of an op by name: `y` and others (`pairs`, `certificate`, ...). */
export type AttentionOutputs = Readonly<Record<string, ProgramTensor>>;

const bidirectionalKinds: readonly string[] = ['dense', 'subquadratic', 'oracle-topk'];

/** @throws {ArgumentError} for bidirectional attention under a policy that is causal only */
export function checkCausal(policy: AttentionPolicy, causal: boolean): void {
  checkDeltaCausal(policy, causal);
  if (causal || bidirectionalKinds.includes(policy.kind)) return;
  const expected = bidirectionalKinds.join(' | ');
  throw new ArgumentError({ argument: 'bidirectional attention', expected, actual: policy.kind });
}

/**
 * Appends the op of a policy, and the correction of its output if it has one.
 * @param mass adds the output `mass`; not for dense attention, and without the correction
 * @throws {ArgumentError} for a policy that the op or the cache does not support
 */
export function lowerPolicy(
  b: ProgramBuilder,
  request: LayerAttention,
  policy: AttentionPolicy,
  options: LowerPolicyOptions,
  mass = false,
): AttentionOutputs {
  checkCausal(policy, options.causal ?? true);
  checkSinks(policy, request);
  checkChunked(policy, request);
  checkBiases(policy, request);
  return correctOutputs(b, request, policy, lowerKind(b, request, policy, options, mass));
}

function lowerKind(
  b: ProgramBuilder,
  request: LayerAttention,
  policy: AttentionPolicy,
  { policies, notice, allowsLargeMemory = false, causal = true }: LowerPolicyOptions,
  mass: boolean,
): AttentionOutputs {
  const { q, positions, sequences, kv, scale, window, chunked = false, softCap, sinkLogits, positionBias } = request;
  const inputs = { q, positions, sequences, ...kv };
  const attributes = { scale, window, softCap, causal, mass };
  switch (policy.kind) {
    case 'dense':
      if (causal) return { y: lowerDenseAttention(b, request) };
      return b.append(
        'attention',
        { ...inputs, sinkLogits, positionBias },
        { scale, window, chunked, softCap, causal },
      );
    case 'subquadratic': {
      const size = meanSizeOf(policy);
      const means = size === undefined ? {} : meansOf(b, request, size);
      const own = subquadraticAttributes(policy);
      return b.append('subquadratic-attention', { ...inputs, ...means }, { ...attributes, ...own });
    }
    case 'streaming':
      return lowerStreaming(b, request, policy, attributes);
    case 'sparq': {
      const { rank, topK, local, meanValue, temperature, grouped, keyLayout } = policy;
      const columns = keyLayout === 'both' ? columnsOf(b, request) : undefined;
      const means = meanValue ? meansOf(b, request, sparqMeanSize(request, policies)) : undefined;
      const { valueMeans, meanCounts } = means ?? {};
      const own = { rank, topK, local, meanValue, temperature, grouped };
      return b.append('sparq-attention', { ...inputs, columns, valueMeans, meanCounts }, { ...attributes, ...own });
    }
    case 'page-topk': {
      const boxes = boxesOf(b, request, policy.pageSize);
      const own = pageTopKAttributes(policy);
      return b.append('page-topk-attention', { ...inputs, ...boxes, sinkLogits }, { ...attributes, ...own });
    }
    case 'verified-topk': {
      const { boxCounts, keyMin, keyMax } = boxesOf(b, request, policy.pageSize);
      const own = verifiedTopKAttributes(policy, request.layer);
      return b.append('verified-topk-attention', { ...inputs, boxCounts, keyMin, keyMax }, { ...attributes, ...own });
    }
    case 'oracle-topk':
      return b.append('oracle-topk-attention', inputs, { ...attributes, k: policy.k });
    case 'h2o-prefill':
      return lowerH2o(b, request, attributes, policy.chunk, allowsLargeMemory ? policy : clampBudgets(policy, notice));
  }
}

/** Attributes of `page-topk-attention` for a policy. */
export function pageTopKAttributes({ budget, epsilon, sinks, window: local }: PageTopKPolicy): Attributes {
  return { budget: budget === 'all' ? -1 : budget, epsilon, sinks, local };
}

/** Attributes of `verified-topk-attention` for a policy. Each layer draws other samples. */
export function verifiedTopKAttributes(policy: VerifiedTopKPolicy, layer: number): Attributes {
  const { epsilon, delta, budget, sinks, window: local, sample, seed } = policy;
  const quantile = twoSidedQuantile(delta);
  return { epsilon, quantile, budget, sinks, local, sample, seed: (seed + layer) % 2 ** 31 };
}

/** Attributes of `streaming-attention` for a policy. */
export function streamingAttributes({ sinks, window: local }: StreamingPolicy): Attributes {
  return { sinks, local };
}

function lowerStreaming(
  b: ProgramBuilder,
  request: LayerAttention,
  policy: StreamingPolicy,
  attributes: Attributes,
): AttentionOutputs {
  const { q, positions, sequences, kv, sinkLogits } = request;
  const inputs = { q, positions, sequences, ...kv, sinkLogits };
  const own = { ...attributes, ...streamingAttributes(policy) };
  if (policy.sinks === 0) return b.append('streaming-attention', inputs, own);
  const limit = lastSinkPosition(policy);
  const remapped = request.rotateQuery(b.activation('clamp-positions', { positions }, { limit }));
  const sinkQ = remapped === q ? undefined : remapped; // models without positions need no second query
  return b.append('streaming-attention', { ...inputs, sinkQ }, own);
}

/** The maximum position of queries for the sinks. */
export function lastSinkPosition({ sinks, window }: StreamingPolicy): number {
  return Math.min(sinks + window - 1, 2 ** 31 - 1);
}
