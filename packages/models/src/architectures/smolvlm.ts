/**
 * SmolVLM (arXiv:2504.05299) and Idefics3 (arXiv:2408.12637): SigLIP encodes the tiles of an image; the states of each square of
 * `s x s` patches are concatenated (pixel shuffle) and projected to one row in the prompt of a Llama.
 */
import { layerNorm, linear } from '../blocks/decoder-blocks.js';
import { addWeights, type Weight } from '../file/weights.js';
import type { DecoderArchitecture, ModelFile, VisionPart } from '../program/architecture.js';
import { tensorNames } from '../program/tensors.js';
import type { TextPart } from '../settings/text-part.js';
import { bucketPositions } from '../vision/bucket-positions.js';
import { gridOf } from '../vision/checkpoint.js';
import { concatenatedRows, describeVision, squareOrder, visionTensors } from '../vision/tower.js';
import { siglipVisionTower } from './siglip.js';
import { describeWithImages } from './with-images.js';

const visionDefaults = {
  hidden_size: 1152,
  intermediate_size: 3072,
  num_hidden_layers: 12,
  num_attention_heads: 16,
  image_size: 224,
  patch_size: 32,
  hidden_act: 'gelu_pytorch_tanh',
  layer_norm_eps: 1e-6,
};

/** The language model of a checkpoint. */
export const smolvlmText: TextPart = {
  renamed: [['model.text_model.', 'model.']],
  otherParts: ['model.vision_model.', 'model.connector.'],
};

export const smolvlm: DecoderArchitecture = {
  name: 'smolvlm',
  models: 'SmolVLM and SmolVLM2 256M, 500M and 2.2B; Idefics3 8B (text and images)',
  limits: [
    'With a Llama: a Hugging Face folder, or a GGUF and an `mmproj` file. Videos are not read.',
    'Positions of patches are rounded as in transformers, in float32 on x86 CPUs.',
  ],
  ggufNames: [],
  hubNames: ['smolvlm', 'idefics3'],
  hubClass: 'SmolVLMForConditionalGeneration',
  describe(file) {
    return describeWithImages(file, smolvlmText, file.fields.integer('image_token_id', 128257), describeTiles);
  },
};

/** Describes the encoder of SmolVLM. @param weights those of the decoder, to which the encoder's are added */
export function describeTiles(file: ModelFile, weights: Map<string, Weight>, imageTokenId: number): VisionPart {
  const { fields, store } = file;
  const prefix = 'model.vision_model.';
  const tower = siglipVisionTower(file, prefix, visionDefaults);
  const { side } = gridOf(tower.fields);
  const scale = fields.count('scale_factor', 2);
  if (side % scale !== 0) throw fields.refusal('scale_factor', `a divisor of ${side}`, scale);
  const dim = weights.get('token_embd.weight')?.shape[1] as number;
  const numInputs = tower.config.hiddenDim * scale ** 2;
  const projection = ['v.mm.proj', 'model.connector.modality_projection.proj'] as const;
  const requests = [
    ...visionTensors(file, tower, prefix, { hasClass: false, hasPostNorm: true }),
    ...tensorNames(file).matrix(projection, [dim, numInputs], 'none'),
  ];
  addWeights(weights, store, requests);
  const numRows = (side / scale) ** 2;
  return describeVision({
    ...{ tower, weights, hasClass: false, numRows, dim, imageTokenId },
    frame: 'tiles',
    order: squareOrder(side, scale),
    places: squarePlaces(bucketPositions(side)),
    slots: { rows: Int32Array.from({ length: numRows }, (_, row) => row) },
    finish(step, hidden, slot) {
      const squares = concatenatedRows(step, layerNorm(step, 'post_ln', hidden), slot('rows'), scale ** 2);
      return linear(step, 'mm.proj', squares);
    },
  });
}

/** Rows of the position table for the patches in row-major order. */
function squarePlaces(positions: Int32Array): Int32Array {
  const side = positions.length;
  return Int32Array.from(
    { length: side ** 2 },
    (_, patch) => (positions[Math.floor(patch / side)] as number) * side + (positions[patch % side] as number),
  );
}
