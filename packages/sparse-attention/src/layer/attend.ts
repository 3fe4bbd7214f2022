/** Attention over whole tensors in one call. */
import { checkOptions, type OptionNames, ShapeError, type Tensor3 } from '@winnow/tensor';
import { parsePolicy } from '../policy/text.js';
import { supportsPhase } from '../policy/fields.js';
import type { AttentionPolicy } from '../policy/kinds.js';
import type { AttendOptions, AttentionResult } from './options.js';
import { AttentionLayer, type AttentionLayerOptions } from './attention-layer.js';

/** Options of `attend`. */
export interface OneShotOptions
  extends
    AttendOptions,
    Pick<
      AttentionLayerOptions,
      'backend' | 'scale' | 'causal' | 'rotate' | 'allowsLargeMemory' | 'notice' | 'maxTokens'
    > {}

const attendNames: OptionNames<OneShotOptions> = {
  backend: true,
  scale: true,
  causal: true,
  rotate: true,
  allowsLargeMemory: true,
  notice: true,
  maxTokens: true,
  out: true,
  onVisit: true,
  mass: true,
  massStride: true,
  signal: true,
};

/** Result of `attend`. */
export interface OneShotResult extends AttentionResult {
  /** Pairs that dense attention would have visited. */
  readonly densePairs: number;
  /** `pairs / densePairs` */
  readonly density: number;
}

/**
 * Attention of queries `[tokens, numHeads, headDim]` that are the last of the `k.seqLen` positions, in one call. Query
 * head h uses KV head `floor(h / (numHeads / numKvHeads))`: MHA, GQA and MQA alike.
 * @param policy object or text, such as `subquadratic:window=64`
 * @throws {ArgumentError | ShapeError}
 */
export async function attend(
  policy: AttentionPolicy | string,
  q: Tensor3,
  k: Tensor3,
  v: Tensor3,
  options: OneShotOptions = {},
): Promise<OneShotResult> {
  checkOptions(options, attendNames);
  if (v.seqLen !== k.seqLen || q.seqLen > k.seqLen) {
    const actual = `${q.seqLen} queries, ${v.seqLen} values`;
    throw new ShapeError({ op: 'attend', rule: 'tokens', expected: `at most ${k.seqLen}, ${k.seqLen}`, actual });
  }
  const parsed = typeof policy === 'string' ? parsePolicy(policy) : policy;
  const phase = supportsPhase(parsed.kind, 'prefill') ? 'prefill' : 'decode';
  const { out, onVisit, mass, massStride, signal, ...layerOptions } = options;
  await using layer = new AttentionLayer({
    ...layerOptions,
    ...{ [phase]: parsed, capacity: k.seqLen, numHeads: q.numHeads },
    ...{ numKvHeads: k.numHeads, headDim: k.headDim, valueDim: v.headDim },
  });
  const begin = k.seqLen - q.seqLen;
  await layer.append(k.slice(0, begin), v.slice(0, begin));
  const [newKeys, newValues] = [k.slice(begin, k.seqLen), v.slice(begin, v.seqLen)];
  const result = await layer[phase](q, newKeys, newValues, { out, onVisit, mass, massStride, signal });
  const { densePairs } = layer.report();
  return { ...result, densePairs, density: result.pairs / densePairs };
}
