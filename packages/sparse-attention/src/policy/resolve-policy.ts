/** Resolves the specification of a whole model to the policies of each layer. */
import { ArgumentError } from '@winnow/tensor';
import { checkAttention } from './attention-spec.js';
import { inPhase, supportsPhase } from './fields.js';
import type { AttentionPhase, AttentionPolicy, AttentionSpec, LayerPolicy } from './kinds.js';

export interface ResolvePolicyOptions {
  readonly numLayers: number;
  /** Layers that are dense whatever the specification says. Default: none. */
  readonly denseLayers?: readonly boolean[] | undefined;
}

/**
 * The policies of layers 0 to `numLayers - 1`. First the policies of the phases, then `denseFirst` and `denseLast`,
 * then the overrides in their order. An override without a phase applies to the phases that its policy supports.
 * @throws {ArgumentError} for a layer that the model does not have, and for invalid text
 */
export function resolvePolicy(
  spec: AttentionSpec | string,
  { numLayers, denseLayers }: ResolvePolicyOptions,
): readonly LayerPolicy[] {
  const { prefill, decode, denseFirst, denseLast, layers } = checkAttention(spec);
  if (denseFirst > numLayers || denseLast > numLayers) {
    const actual = `dense-first=${denseFirst}, dense-last=${denseLast}`;
    throw new ArgumentError({ argument: 'attention', expected: `at most ${numLayers} layers`, actual });
  }
  for (const { first, last } of layers) {
    if (last < numLayers) continue;
    const expected = `layers from 0 to ${numLayers - 1}`;
    throw new ArgumentError({ argument: 'attention: layers', expected, actual: `${first}-${last}` });
  }
  const dense: AttentionPolicy = { kind: 'dense' };
  return Array.from({ length: numLayers }, (_, layer) => {
    if (denseLayers?.[layer] === true) return { prefill: dense, decode: dense };
    const isDense = layer < denseFirst || layer >= numLayers - denseLast;
    const resolved: Record<AttentionPhase, AttentionPolicy> = isDense
      ? { prefill: dense, decode: dense }
      : { prefill, decode };
    for (const { first, last, phase, policy } of layers) {
      if (layer < first || layer > last) continue;
      for (const target of phase === 'both' ? (['prefill', 'decode'] as const) : [phase]) {
        if (supportsPhase(policy.kind, target)) resolved[target] = inPhase(policy, target);
      }
    }
    return resolved;
  });
}
