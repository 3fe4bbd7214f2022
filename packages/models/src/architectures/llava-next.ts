/**
 * LLaVA-NeXT (LLaVA 1.6; arXiv:2310.03744 §5): the encoder and projector of LLaVA 1.5, applied to a grid of tiles and to the
 * whole image. The rows of the grid are joined line by line, without those of its padding, and each line ends with a learned row.
 */
import type { DecoderArchitecture } from '../program/architecture.js';
import { visionLanguageParts } from '../settings/text-part.js';
import { describeLlama } from './llama.js';
import { describeProjected, imageTokenOf } from './llava.js';
import { describeQwen2 } from './qwen2.js';
import { describeWithImages } from './with-images.js';

export const llavaNext: DecoderArchitecture = {
  name: 'llava-next',
  models: 'LLaVA-NeXT (LLaVA 1.6) with Vicuna, Mistral, Llama 3, Yi or Qwen (text and images)',
  limits: [
    'With a Llama, Mistral or Qwen 2: a Hugging Face folder, or a GGUF and an `mmproj` file. Videos are not read.',
    'With an `mmproj` file, images are preprocessed as in transformers; llama.cpp resizes them differently.',
  ],
  ggufNames: [],
  hubNames: ['llava_next'],
  hubClass: 'LlavaNextForConditionalGeneration',
  describe(file) {
    return describeWithImages(
      file,
      visionLanguageParts,
      imageTokenOf(file, 32000),
      (vision, weights, token) =>
        describeProjected(vision, weights, token, { encoder: 'clip_vision_model', strategy: 'default', layer: -2 }, {}),
      { llama: describeLlama, mistral: describeLlama, qwen2: describeQwen2 },
    );
  },
};
