/** The attention of the program that drafts with the weights and the cache of the model: `speculative: 'self=POLICY'`. */
import type { DecoderConfig, DecoderProgramOptions } from '@winnow/models';
import type { Program } from '@winnow/ops';
import { createAttentionLowering, resolvePolicy, type AttentionPolicy } from '@winnow/sparse-attention';
import { ArgumentError } from '@winnow/tensor';
import { layersOf } from './attention-plan.js';

/** @throws {ArgumentError} for a policy with data of its own in the cache, which rejected drafts would change */
export function draftAttention(
  text: string,
  config: DecoderConfig,
  notice: (text: string) => void,
): Pick<DecoderProgramOptions, 'attention'> {
  const layers = resolvePolicy(text, layersOf(config)).map(({ decode }) => ({ prefill: decode, decode }));
  const unsuitable = layers.find(({ decode }) => keepsData(decode));
  if (unsuitable !== undefined) {
    const expected =
      'self=streaming:..., self=sparq:mean=false,... or self=dense: policies that keep no data beside keys and values';
    throw new ArgumentError({ argument: 'speculative', expected, actual: `self=${text}` });
  }
  return { attention: createAttentionLowering(layers, 'decode', { notice }) };
}

/** @throws {ArgumentError} for a program with recurrent states, which every drafted token would replace */
export function refuseStates(program: Program, text: string): void {
  if (!program.buffers.some(({ name }) => name.startsWith('state.'))) return;
  const expected = 'lookup | draft | off for a model with recurrent states';
  throw new ArgumentError({ argument: 'speculative', expected, actual: `self=${text}` });
}

function keepsData(policy: AttentionPolicy): boolean {
  if (policy.kind === 'sparq') return policy.meanValue || policy.keyLayout === 'both';
  return policy.kind !== 'streaming' && policy.kind !== 'dense';
}
