/**
 * LLaVA 1.5 (arXiv:2310.03744): the states of CLIP's patches before its last layer, projected by two linear layers with a GELU
 * between them, replace the token `<image>` in the prompt of a Llama.
 */
import { linear } from '../blocks/decoder-blocks.js';
import { Fields } from '../file/fields.js';
import { addWeights, type Weight, type WeightRequest } from '../file/weights.js';
import type { DecoderArchitecture, ModelFile, VisionGrid, VisionPart } from '../program/architecture.js';
import { tensorNames } from '../program/tensors.js';
import { activationOf } from '../settings/config-checks.js';
import { gridOf, type Tower } from '../vision/checkpoint.js';
import { visionLanguageParts } from '../settings/text-part.js';
import { describeWithImages } from './with-images.js';
import { describeVision, visionTensors } from '../vision/tower.js';
import { clipVisionTower } from './clip.js';
import { siglipVisionDefaults, siglipVisionTower } from './siglip.js';

export const llava: DecoderArchitecture = {
  name: 'llava',
  models: 'LLaVA 1.5 7B and 13B (text and images)',
  limits: [
    'With a Llama and a CLIP or SigLIP encoder: a Hugging Face folder, or (CLIP only) a GGUF and an `mmproj` file.',
    'With an `mmproj` file, images are preprocessed as in transformers, which crops the center; llama.cpp pads.',
    'Only the patches of a single encoder layer, without the class token, as in LLaVA 1.5.',
  ],
  ggufNames: [],
  hubNames: ['llava'],
  hubClass: 'LlavaForConditionalGeneration',
  describe(file) {
    return describeWithImages(file, visionLanguageParts, imageTokenOf(file, 32000), describeClip);
  },
};

/** The image token, under its newer or its older name. */
export function imageTokenOf({ fields }: ModelFile, fallback: number): number {
  return fields.integer(fields.has('image_token_id') ? 'image_token_id' : 'image_token_index', fallback);
}

/** Settings of LLaVA and its successors that a file leaves out. */
export interface LlavaDefaults {
  /** `model_type` of the encoder. */
  readonly encoder: 'clip_vision_model' | 'siglip_vision_model';
  /** `full`: all rows of the encoder; `default`: all but the first, which is the class token of CLIP. */
  readonly strategy: 'default' | 'full';
  readonly layer: number;
}

const llavaDefaults: LlavaDefaults = { encoder: 'clip_vision_model', strategy: 'default', layer: -2 };

/** Describes the encoder of LLaVA 1.5. @param weights those of the decoder, to which the encoder's are added */
export function describeClip(file: ModelFile, weights: Map<string, Weight>, imageTokenId: number): VisionPart {
  return describeProjected(file, weights, imageTokenId, llavaDefaults);
}

/** Describes the encoder of LLaVA-NeXT or LLaVA-OneVision, whose files declare all settings. */
export function describeTilesOfClip(file: ModelFile, weights: Map<string, Weight>, imageTokenId: number): VisionPart {
  const maxTiles = file.fields.has('vision_aspect_ratio') ? maxTilesOf(file) : undefined;
  return describeProjected(file, weights, imageTokenId, llavaDefaults, maxTiles === undefined ? {} : { maxTiles });
}

/** `anyres_max_9` limits an image to the rows of nine tiles. */
export function maxTilesOf({ fields }: ModelFile): number {
  const value = fields.string('vision_aspect_ratio', 'anyres_max_9');
  const number = /^anyres_max_([1-9]\d{0,2})$/.exec(value)?.[1];
  if (number !== undefined) return Number(number);
  throw fields.refusal('vision_aspect_ratio', 'anyres_max_N with N from 1 to 999', value);
}

/**
 * Describes an encoder and a projector of two linear layers.
 * @param weights those of the decoder, to which the encoder's are added
 * @param grid how the tiles of an image are joined, which requires the tensor `image_newline`. Default: the image is one tile
 * @throws {FormatError} for an encoder that is neither CLIP nor SigLIP, and for a selection other than all patches
 */
export function describeProjected(
  file: ModelFile,
  weights: Map<string, Weight>,
  imageTokenId: number,
  defaults: LlavaDefaults,
  grid?: VisionGrid,
): VisionPart {
  const { fields, store } = file;
  const { outer, prefix } = prefixesOf(file);
  const hasClass = isClip(fields, defaults);
  const tower = hasClass ? clipVisionTower(file, prefix) : siglipVisionTower(file, prefix, siglipVisionDefaults);
  const strategy = hasClass ? 'default' : 'full';
  const declared = fields.string('vision_feature_select_strategy', defaults.strategy);
  if (declared !== strategy) throw fields.refusal('vision_feature_select_strategy', strategy, declared);
  const numLayers = featureLayers(file, tower, defaults.layer);
  const dim = weights.get('token_embd.weight')?.shape[1] as number;
  const kind = activationOf(fields, 'projector_hidden_act', 'gelu');
  const isUnused = (name: string): boolean =>
    name.endsWith('.position_ids') ||
    /post_layernorm|^v\.post_ln\.|vision_model\.head\./.test(name) ||
    isLater(name, numLayers);
  const shown = { ...tower, config: { ...tower.config, numLayers } };
  const requests = [
    ...visionTensors(file, shown, prefix, { hasClass, hasPostNorm: false }),
    ...projector(file, tower, `${outer}multi_modal_projector`, dim),
  ];
  if (grid !== undefined)
    requests.push(newlineRequest(file.format === 'gguf' ? 'v.image_newline' : `${outer}image_newline`, dim));
  addWeights(weights, store, requests, isUnused);
  const numRows = gridOf(tower.fields).side ** 2;
  return describeVision({
    ...{ tower: shown, weights, hasClass, numRows, dim, imageTokenId },
    ...(grid === undefined ? {} : { grid }),
    slots: { rows: Int32Array.from({ length: numRows }, (_, row) => row + Number(hasClass)) },
    finish(step, hidden, slot) {
      const patches = step.b.activation('gather-rows', { x: hidden, rows: slot('rows') });
      const y = step.b.activation('activation', { x: linear(step, 'mm.0', patches) }, { kind });
      return linear(step, 'mm.2', y);
    },
  });
}

function prefixesOf({ store }: ModelFile): { readonly outer: string; readonly prefix: string } {
  const outer = [...store.tensors.keys()].some((name) => name.startsWith('model.')) ? 'model.' : '';
  const tower = `${outer}vision_tower.`;
  const inner = `${tower}vision_model.`;
  return { outer, prefix: store.tensors.has(`${inner}embeddings.patch_embedding.weight`) ? inner : tower };
}

/** @throws {FormatError} for an encoder that is neither CLIP nor SigLIP */
function isClip(fields: Fields, { encoder }: LlavaDefaults): boolean {
  const section = Fields.ofJson(`${fields.source}: vision_config`, fields.raw('vision_config') ?? {});
  const kind = section.string('model_type', encoder);
  if (kind === 'clip_vision_model' || kind === 'siglip_vision_model') return kind === 'clip_vision_model';
  throw section.refusal('model_type', 'clip_vision_model or siglip_vision_model', kind);
}

/** The row at the end of a line, as a table of one row. */
function newlineRequest(storedName: string, dim: number): WeightRequest {
  return { name: 'v.image_newline.weight', storedName, shape: [1, dim], isFloat: true };
}

/** The number of layers to compute; `-2` selects the input of the last layer. */
function featureLayers({ fields }: ModelFile, { config: { numLayers } }: Tower, fallback: number): number {
  const layer = fields.raw('vision_feature_layer') ?? fallback;
  const isValid = typeof layer === 'number' && Number.isSafeInteger(layer) && Math.abs(layer) <= numLayers;
  if (!isValid) throw fields.refusal('vision_feature_layer', `a layer from ${-numLayers} to ${numLayers}`, layer);
  return layer < 0 ? numLayers + 1 + layer : layer;
}

/** Whether a tensor belongs to a layer that is not computed. */
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
