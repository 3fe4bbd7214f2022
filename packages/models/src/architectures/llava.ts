/**
 * LLaVA 1.5 (arXiv:2310.03744): the hidden states of CLIP's patches before its last layer, projected by two linear layers with
 * a GELU between them, stand for the token `<image>` in the prompt of a Llama.
 */
import { linear } from '../blocks/decoder-blocks.js';
import { collectWeights, type Weight, type WeightRequest } from '../file/weights.js';
import type { DecoderArchitecture, ModelFile, VisionPart } from '../program/architecture.js';
import { tensorNames } from '../program/tensors.js';
import { activationOf } from '../settings/config-checks.js';
import { gridOf, type Tower } from '../vision/checkpoint.js';
import { visionLanguageParts } from '../settings/text-part.js';
import { describeWithImages } from './with-images.js';
import { describeVision, visionTensors } from '../vision/tower.js';
import { clipVisionTower } from './clip.js';

export const llava: DecoderArchitecture = {
  name: 'llava',
  models: 'LLaVA 1.5 7B and 13B (text and images)',
  limits: [
    'A Llama as language model and a CLIP encoder: a Hugging Face folder, or a GGUF file of a Llama and an `mmproj` file.',
    'Images of an `mmproj` file are prepared as by transformers, whose processor crops the middle; llama.cpp pads.',
    'One layer of the encoder, without its class token, as in LLaVA 1.5.',
  ],
  ggufNames: [],
  hubNames: ['llava'],
  hubClass: 'LlavaForConditionalGeneration',
  describe(file) {
    const { fields } = file;
    const token = fields.integer(fields.has('image_token_id') ? 'image_token_id' : 'image_token_index', 32000);
    return describeWithImages(file, visionLanguageParts, token, describeClip);
  },
};

/** The encoder of LLaVA 1.5; the weights are added to those of the decoder. */
export function describeClip(file: ModelFile, weights: Map<string, Weight>, imageTokenId: number): VisionPart {
  const { fields, store } = file;
  const outer = [...store.tensors.keys()].some((name) => name.startsWith('model.')) ? 'model.' : '';
  const inner = store.tensors.has(`${outer}vision_tower.vision_model.embeddings.class_embedding`)
    ? 'vision_model.'
    : '';
  const prefix = `${outer}vision_tower.${inner}`;
  const tower = clipVisionTower(file, prefix);
  const strategy = fields.string('vision_feature_select_strategy', 'default');
  if (strategy !== 'default') throw fields.refusal('vision_feature_select_strategy', 'default', strategy);
  const numLayers = featureLayers(file, tower);
  const dim = weights.get('token_embd.weight')?.shape[1] as number;
  const kind = activationOf(fields, 'projector_hidden_act', 'gelu');
  const isUnused = (name: string): boolean =>
    name.endsWith('.position_ids') || /post_layernorm|^v\.post_ln\./.test(name) || isLater(name, numLayers);
  const shown = { ...tower, config: { ...tower.config, numLayers } };
  const requests = [
    ...visionTensors(file, shown, prefix, { hasClass: true, hasPostNorm: false }),
    ...projector(file, tower, `${outer}multi_modal_projector`, dim),
  ];
  for (const [name, weight] of collectWeights(store, requests, isUnused)) weights.set(name, weight);
  const numRows = gridOf(tower.fields).side ** 2;
  return describeVision({
    ...{ tower: shown, weights, hasClass: true, numRows, dim, imageTokenId },
    slots: { rows: Int32Array.from({ length: numRows }, (_, row) => row + 1) },
    finish(step, hidden, slot) {
      const patches = step.b.activation('gather-rows', { x: hidden, rows: slot('rows') });
      const y = step.b.activation('activation', { x: linear(step, 'mm.0', patches) }, { kind });
      return linear(step, 'mm.2', y);
    },
  });
}

/** How many layers lead to the states that are used: `-2` stands for the input of the last one. */
function featureLayers({ fields }: ModelFile, { config: { numLayers } }: Tower): number {
  const layer = fields.raw('vision_feature_layer') ?? -2;
  const isValid = typeof layer === 'number' && Number.isSafeInteger(layer) && Math.abs(layer) <= numLayers;
  if (!isValid) throw fields.refusal('vision_feature_layer', `a layer from ${-numLayers} to ${numLayers}`, layer);
  return layer < 0 ? numLayers + 1 + layer : layer;
}

/** Whether a tensor belongs to a layer beyond those that are used. */
function isLater(name: string, numLayers: number): boolean {
  const layer = /(?:\.encoder\.layers|^v\.blk)\.(\d+)\./.exec(name)?.[1];
  return layer !== undefined && Number(layer) >= numLayers;
}

function projector(file: ModelFile, { config }: Tower, hub: string, dim: number): WeightRequest[] {
  const names = tensorNames(file);
  const bias = file.fields.boolean('multimodal_projector_bias', true) ? 'required' : 'none';
  return [
    ...names.matrix(['v.mm.0', `${hub}.linear_1`], [dim, config.hiddenDim], bias),
    ...names.matrix(['v.mm.2', `${hub}.linear_2`], [dim, dim], bias),
  ];
}
