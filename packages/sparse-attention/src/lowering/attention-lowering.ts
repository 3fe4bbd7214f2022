/** From a policy to the records of a program. */
import {
  maxGlobals,
  lowerDenseAttention,
  type LayerAttention,
  type AttentionLowering,
  type ProgramBuilder,
  type ProgramTensor,
} from '@winnow/ops';
import { ArgumentError } from '@winnow/tensor';
import { clampBudgets } from '../families/h2o-memory.js';
import type { AttentionPhase, AttentionPolicy, AttentionSpec, SubquadraticPolicy } from '../policy/policy-types.js';
import { resolvePolicy } from '../policy/resolve-policy.js';
import { carryH2o, writeH2o } from './h2o-lowering.js';
import { appendSideData, boxesOf, columnsOf, meanSizeOf, meansOf, sparqMeanSize } from './side-data.js';

/** What `createAttentionLowering` needs to know of the model. */
export interface AttentionLoweringOptions {
  readonly numLayers: number;
  /** Hears what had to be changed, in words. */
  readonly notice?: ((text: string) => void) | undefined;
  /** Hears what an op tells besides its output (`pairs`, `certificate`, ...), to keep it as a program output. */
  readonly observe?:
    | ((b: ProgramBuilder, layer: number, outputs: Readonly<Record<string, ProgramTensor>>) => void)
    | undefined;
  /**
   * Lets `observe` hear `mass`, too: `[T, K, M, S]`, for each token and KV head the probabilities that the keys visited in slot `s`
   * of block `m` have, summed over the query heads. Not of dense layers: see the op `attention-mass`.
   */
  readonly mass?: boolean | undefined;
}

/**
 * The writer of one phase. The programs of both phases work on the same caches: each also keeps what the other phase's policy
 * needs (landmarks, boxes, transposed keys, states), in buffers `kv.<layer>.*` per block and `state.<layer>.*` per sequence.
 * @throws {ArgumentError} for a specification that does not fit the model; from the writer, when cache blocks do not fit
 */
export function createAttentionLowering(
  spec: AttentionSpec | string,
  phase: AttentionPhase,
  { numLayers, notice, observe, mass = false }: AttentionLoweringOptions,
): AttentionLowering {
  const layers = resolvePolicy(spec, { numLayers });
  const told = new Set<string>();
  const tellOnce = (text: string): void => {
    if (!told.has(text)) notice?.(text);
    told.add(text);
  };
  return (b, site) => {
    const policies = layers[site.layer];
    if (policies === undefined) {
      const expected = `layers from 0 to ${numLayers - 1}`;
      throw new ArgumentError({ argument: 'attention: layer', expected, actual: String(site.layer) });
    }
    const { prefill, decode } = policies;
    const all = [prefill, decode];
    appendSideData(b, site, all);
    if (phase === 'decode' && prefill.kind === 'h2o-prefill') {
      carryH2o(b, site, prefill.chunk, clampBudgets(prefill, tellOnce));
    }
    const outputs = write(b, site, phase === 'prefill' ? prefill : decode, all, mass, tellOnce);
    observe?.(b, site.layer, outputs);
    return outputs['y'] as ProgramTensor;
  };
}

function write(
  b: ProgramBuilder,
  site: LayerAttention,
  policy: AttentionPolicy,
  all: readonly AttentionPolicy[],
  mass: boolean,
  notice: (text: string) => void,
): Readonly<Record<string, ProgramTensor>> {
  const { q, positions, sequences, kv, scale, window, softCap } = site;
  const inputs = { q, positions, sequences, ...kv };
  const attributes = { scale, window, softCap, mass };
  switch (policy.kind) {
    case 'dense':
      return { y: lowerDenseAttention(b, site) };
    case 'subquadratic': {
      const size = meanSizeOf(policy);
      const means = size === undefined ? {} : meansOf(b, site, size);
      return b.append('subquadratic-attention', { ...inputs, ...means }, { ...attributes, ...subquadratic(policy) });
    }
    case 'streaming': {
      const limit = Math.min(policy.sinks + policy.window - 1, 2 ** 31 - 1);
      const own = { ...attributes, local: policy.window, sinks: policy.sinks };
      if (policy.sinks === 0) return b.append('streaming-attention', inputs, own);
      const remapped = site.rotateQuery(b.activation('clamp-positions', { positions }, { limit }));
      const sinkQ = remapped === q ? undefined : remapped; // models without positions need no second query
      return b.append('streaming-attention', { ...inputs, sinkQ }, own);
    }
    case 'sparq': {
      const { rank, topK, local, meanValue, temperature, grouped, keyLayout } = policy;
      const columns = keyLayout === 'both' ? columnsOf(b, site) : undefined;
      const means = meanValue ? meansOf(b, site, sparqMeanSize(site, all)) : undefined;
      const { valueMeans, meanCounts } = means ?? {};
      return b.append(
        'sparq-attention',
        { ...inputs, columns, valueMeans, meanCounts },
        { ...attributes, rank, topK, local, meanValue, temperature, grouped },
      );
    }
    case 'page-topk': {
      const { budget, epsilon, sinks, window: local, pageSize } = policy;
      return b.append(
        'page-topk-attention',
        { ...inputs, ...boxesOf(b, site, pageSize) },
        { ...attributes, budget: budget === 'all' ? -1 : budget, epsilon, sinks, local },
      );
    }
    case 'oracle-topk':
      return b.append('oracle-topk-attention', inputs, { ...attributes, k: policy.k });
    case 'h2o-prefill':
      return writeH2o(b, site, attributes, policy.chunk, clampBudgets(policy, notice));
  }
}

/** Attributes of the op that a policy stands for. @throws {ArgumentError} for more globals than a record holds */
function subquadratic(policy: SubquadraticPolicy): Readonly<Record<string, number | string | boolean>> {
  const { globals, window, logStride, landmarks, landmarkBias } = policy;
  if (globals.length > maxGlobals) {
    const actual = String(globals.length);
    throw new ArgumentError({ argument: 'attention: globals', expected: `at most ${maxGlobals} positions`, actual });
  }
  return {
    ...{ local: window, logStride, landmarks, logCount: landmarkBias === 'log-count' },
    ...Object.fromEntries(globals.map((position, index) => [`global${index}`, position])),
  };
}
