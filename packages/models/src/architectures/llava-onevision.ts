/**
 * LLaVA-OneVision (arXiv:2408.03326 §3.2): SigLIP encodes a grid of tiles and the whole image; the projector is that of LLaVA 1.5.
 * The rows of the grid are joined as in LLaVA-NeXT, and downsampled when there are too many.
 */
import type { DecoderArchitecture } from '../program/architecture.js';
import { visionLanguageParts } from '../settings/text-part.js';
import { describeLlama } from './llama.js';
import { describeProjected, imageTokenOf, maxTilesOf } from './llava.js';
import { describeQwen2 } from './qwen2.js';
import { describeWithImages } from './with-images.js';

export const llavaOnevision: DecoderArchitecture = {
  name: 'llava-onevision',
  models: 'LLaVA-OneVision 0.5B, 7B and 72B (text and images)',
  limits: [
    'With a Qwen 2 or Llama: a Hugging Face folder, or a GGUF and an `mmproj` file. Videos are not read.',
    'The only image of a prompt is split into a grid of tiles; each of several images is one tile, as in transformers.',
  ],
  ggufNames: [],
  hubNames: ['llava_onevision'],
  hubClass: 'LlavaOnevisionForConditionalGeneration',
  describe(file) {
    const grid = { maxTiles: maxTilesOf(file) };
    return describeWithImages(
      file,
      visionLanguageParts,
      imageTokenOf(file, 151646),
      (vision, weights, token) =>
        describeProjected(
          vision,
          weights,
          token,
          { encoder: 'siglip_vision_model', strategy: 'full', layer: -1 },
          grid,
        ),
      { qwen2: describeQwen2, llama: describeLlama },
    );
  },
};
