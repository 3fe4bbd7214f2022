/** What the text encoders of CLIP and SigLIP have in common. */
import type { ProgramTensor } from '@winnow/ops';
import { add } from '../blocks/decoder-blocks.js';
import type { Fields } from '../file/fields.js';
import type { WeightRequest } from '../file/weights.js';
import type { ModelFile } from '../program/architecture.js';
import type { DecoderConfig } from '../program/config.js';
import { embedTokens, type DecoderStep } from '../program/decoder-program.js';
import { tensorNames } from '../program/tensors.js';
import { layerTensors, type Tower } from './checkpoint.js';

/** `token + position`. */
export function embedWithPositions(step: DecoderStep): ProgramTensor {
  const { b, weight, positions } = step;
  const x = embedTokens(step);
  return add(step, x, b.activation('embedding-lookup', { table: weight('position_embd.weight'), tokens: positions }));
}

/** The embedding size. @throws {FormatError} when it is not the hidden size of the text encoder */
export function sharedDim(fields: Fields, { hiddenDim }: DecoderConfig, dim: number): number {
  if (dim !== hiddenDim)
    throw fields.refusal('projection_dim', `${hiddenDim}, the hidden size of the text encoder`, dim);
  return dim;
}

/** The tensors of a text encoder without its projection. */
export function* textTensors(file: ModelFile, { config }: Tower): Generator<WeightRequest> {
  const names = tensorNames(file);
  const { vocabSize, hiddenDim, contextLength } = config;
  const embeddings = 'text_model.embeddings';
  yield* names.matrix(['token_embd', `${embeddings}.token_embedding`], [vocabSize, hiddenDim], 'none');
  yield* names.matrix(['position_embd', `${embeddings}.position_embedding`], [contextLength, hiddenDim], 'none');
  yield* names.norm(['output_norm', 'text_model.final_layer_norm'], hiddenDim, 'required');
  yield* layerTensors(file, config, '', 'text_model.');
}
