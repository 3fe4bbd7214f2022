/** Lowers the policies of a model to the ops of its programs. */
import type { AttentionLowering, ProgramBuilder, ProgramTensor } from '@winnow/ops';
import { ArgumentError } from '@winnow/tensor';
import { clampBudgets } from '../policy/costs.js';
import { deltaOf } from '../policy/fields.js';
import type { AttentionPhase, LayerPolicy } from '../policy/kinds.js';
import { carryDelta } from './delta-lowering.js';
import { carryH2o } from './h2o-lowering.js';
import { lowerPolicy, type AttentionOutputs } from './lower-policy.js';
import { appendSideData } from './side-data.js';

/** Options of `createAttentionLowering`. */
export interface AttentionLoweringOptions {
  /** Receives a sentence about each change to a policy. */
  readonly notice?: ((text: string) => void) | undefined;
  /** Receives the other outputs of an op (`pairs`, `certificate`, ...), to keep them as program outputs. */
  readonly observe?: ((b: ProgramBuilder, layer: number, outputs: AttentionOutputs) => void) | undefined;
  /**
   * Also passes `mass` to `observe`: `[T, K, M, S]`, for each token and KV head the probabilities of the keys visited
   * in slot `s` of block `m`, summed over the query heads. Not for dense layers: see the op `attention-mass`.
   */
  readonly mass?: boolean | undefined;
}

/**
 * The lowering of one phase. The programs of both phases work on the same caches: each also maintains what the policy
 * of the other phase needs (landmarks, boxes, transposed keys, states), in buffers `kv.<layer>.*` per block and
 * `state.<layer>.*` per sequence.
 * @param layers what `resolvePolicy` returns
 * @throws {ArgumentError} from the lowering, when cache blocks do not fit
 */
export function createAttentionLowering(
  layers: readonly LayerPolicy[],
  phase: AttentionPhase,
  { notice, observe, mass = false }: AttentionLoweringOptions = {},
): AttentionLowering {
  const reported = new Set<string>();
  const noticeOnce = (text: string): void => {
    if (!reported.has(text)) notice?.(text);
    reported.add(text);
  };
  return (b, request) => {
    const policy = layers[request.layer];
    if (policy === undefined) {
      const expected = `layers from 0 to ${layers.length - 1}`;
      throw new ArgumentError({ argument: 'attention: layer', expected, actual: String(request.layer) });
    }
    const { prefill, decode } = policy;
    const policies = [prefill, decode];
    appendSideData(b, request, policies);
    if (phase === 'decode' && prefill.kind === 'h2o-prefill') {
      carryH2o(b, request, prefill.chunk, clampBudgets(prefill, noticeOnce));
    }
    if (phase === 'decode' && deltaOf(prefill) > 0) carryDelta(b, request);
    const outputs = lowerPolicy(b, request, policy[phase], { policies, notice: noticeOnce }, mass);
    observe?.(b, request.layer, outputs);
    return outputs['y'] as ProgramTensor;
  };
}
