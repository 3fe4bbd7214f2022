/** Building blocks of encoders, in addition to those of decoders. */
import type { ProgramTensor } from '@winnow/ops';
import type { EmbedderDescription } from '../program/architecture.js';
import { embedTokens, type DecoderStep } from '../program/decoder-program.js';
import { beginEmbedding, endEmbedding } from '../program/embedding-program.js';
import { add, attentionBlock, layerNorm, type AttentionOptions, type DecoderDesign } from './decoder-blocks.js';

/** What an architecture specifies about an encoder. */
export interface EncoderDesign extends Pick<DecoderDesign, 'config' | 'weights' | 'rotaries' | 'layer'> {
  readonly embed: (step: DecoderStep) => ProgramTensor;
  /** Name of the norm after the last layer. Default: none. */
  readonly norm?: (step: DecoderStep, x: ProgramTensor) => ProgramTensor;
}

/** Creates the description of an encoder with sequential layers. */
export function describeEncoder({
  config,
  weights,
  rotaries = [],
  embed,
  layer,
  norm = (_step, x): ProgramTensor => x,
}: EncoderDesign): EmbedderDescription {
  const constants = new Map(rotaries.flatMap((rotary) => rotary.constants));
  return {
    config,
    weights,
    constants,
    buildEmbeddingProgram(options) {
      const step = beginEmbedding({ config, weights, constants }, options);
      let x = embed(step);
      for (let index = 0; index < config.numLayers; index++) {
        step.b.setLayer(index);
        x = layer(step, index, x);
      }
      endEmbedding(step, x, (rows) => norm(step, rows), options);
      return step.b.build();
    },
  };
}

/** `LN(token + type + position)`; types and positions are optional. */
export function embedWithNorm(step: DecoderStep): ProgramTensor {
  const { b, optionalWeight, positions } = step;
  let x = embedTokens(step);
  const types = optionalWeight('token_types.weight');
  if (types !== undefined)
    x = add(step, x, b.activation('embedding-lookup', { table: types, tokens: step.tokenTypes() }));
  const table = optionalWeight('position_embd.weight');
  if (table !== undefined) x = add(step, x, b.activation('embedding-lookup', { table, tokens: positions }));
  return layerNorm(step, 'token_embd_norm', x);
}

/** `x = LN(x + attn(x)); x = LN(x + ffn(x))`. @param attention options; a function, because they may contain weights of the step */
export function postNormLayer(
  attention: AttentionOptions | ((step: DecoderStep) => AttentionOptions),
  feedForward: (step: DecoderStep, layer: number, x: ProgramTensor) => ProgramTensor,
): EncoderDesign['layer'] {
  return (step, layer, input) => {
    const options = typeof attention === 'function' ? attention(step) : attention;
    const attended = add(step, input, attentionBlock(step, layer, input, options));
    const x = layerNorm(step, `blk.${layer}.attn_output_norm`, attended);
    return layerNorm(step, `blk.${layer}.layer_output_norm`, add(step, x, feedForward(step, layer, x)));
  };
}
