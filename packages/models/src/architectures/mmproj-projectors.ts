/** Projectors of `mmproj` files (tools/mtmd/clip-impl.h at 0024aa74): their language models, and their settings as in config.json. */
import type { Fields } from '../file/fields.js';
import type { Weight } from '../file/weights.js';
import type { ModelFile, VisionPart } from '../program/architecture.js';
import { listOf } from '../settings/recurrent-settings.js';
import { describeGemmaVision } from './gemma3-vision.js';
import { describeGemma3 } from './gemma3.js';
import { describeLlama } from './llama.js';
import { describeClip, describeTilesOfClip } from './llava.js';
import { describeQwen2 } from './qwen2.js';
import { describeQwen2Text, describeQwen2Vision } from './qwen2vl.js';
import { describeQwen3Vision, qwen3Decoders } from './qwen3vl.js';
import { describeTiles } from './smolvlm.js';
import type { DescribeDecoder } from './with-images.js';

type Settings = Readonly<Record<string, unknown>>;

export interface Projector {
  /** Language models by `general.architecture`. */
  readonly decoders: Readonly<Record<string, DescribeDecoder>>;
  /** The matrix whose outputs have the hidden size of the language model, and the axis of that size. */
  readonly matrix: readonly [name: string, axis: 0 | 1];
  /** The token for images, which the vocabulary of the language model must contain. Default: `<image>` in the text of the prompt. */
  readonly token?: string;
  readonly describe: (file: ModelFile, weights: Map<string, Weight>, imageTokenId: number) => VisionPart;
  /** Settings of config.json besides those of the encoder. */
  readonly settings: (clip: ModelFile) => Settings;
  /** Settings of the encoder in config.json besides the common ones. */
  readonly encoder?: (clip: ModelFile) => Settings;
  /** Settings of preprocessor_config.json that the file lacks, as in the published models. */
  readonly processor: (part: VisionPart, fields: Fields) => Settings;
}

/** Prefix of the settings of the encoder. */
export const vision = 'clip.vision';

const gemma3: Projector = {
  decoders: { gemma3: describeGemma3 },
  matrix: ['v.mm.input_projection.weight', 1],
  describe: describeGemmaVision,
  settings({ fields }) {
    const side = Math.floor(fields.count(`${vision}.image_size`) / fields.count(`${vision}.patch_size`));
    const factor = fields.count(`${vision}.projector.scale_factor`, 4);
    if (side % factor !== 0) {
      throw fields.refusal(`${vision}.projector.scale_factor`, `a divisor of ${side}, the patches per side`, factor);
    }
    return { mm_tokens_per_image: (side / factor) ** 2 };
  },
  processor: ({ imageSize }) => ({
    image_processor_type: 'Gemma3ImageProcessor',
    resample: 2,
    size: { height: imageSize, width: imageSize },
  }),
};

const idefics3: Projector = {
  decoders: { llama: describeLlama },
  matrix: ['v.mm.proj.weight', 0],
  token: '<image>',
  describe: describeTiles,
  settings: ({ fields }) => ({ scale_factor: fields.count(`${vision}.projector.scale_factor`) }),
  processor: ({ imageSize }, fields) => ({
    ...{ image_processor_type: 'Idefics3ImageProcessor', resample: 1, max_image_size: { longest_edge: imageSize } },
    size: { longest_edge: fields.count(`${vision}.preproc_image_size`, 4 * imageSize) },
  }),
};

/** LLaVA 1.5. */
const mlp: Projector = {
  decoders: { llama: describeLlama },
  matrix: ['v.mm.2.weight', 0],
  describe: describeClip,
  settings: ({ fields, store }) => ({
    vision_feature_layer: featureLayer(fields),
    multimodal_projector_bias: store.tensors.has('mm.0.bias'),
  }),
  processor: ({ imageSize }) => ({
    ...{ image_processor_type: 'CLIPImageProcessor', resample: 3, size: { shortest_edge: imageSize } },
    crop_size: { height: imageSize, width: imageSize },
  }),
};

/** Without the setting, the file contains only the layers to compute. @throws {FormatError} for several layers */
function featureLayer(fields: Fields): unknown {
  const key = `${vision}.feature_layer`;
  const layers = listOf(fields, key) ?? [-1];
  if (layers.length === 1) return layers[0];
  throw fields.refusal(key, 'one layer', layers);
}

// bundlers keep objects that spread others, and all that they refer to, unless a pure function returns them

/** LLaVA-NeXT and LLaVA-OneVision. */
const mlpTiles: Projector = /* @__PURE__ */ (() => ({
  ...mlp,
  decoders: { llama: describeLlama, qwen2: describeQwen2 },
  describe: describeTilesOfClip,
  settings(clip) {
    const { fields, store } = clip;
    // with any other value, or none, llama.cpp concatenates the rows of tiles
    const merging = fields.raw(`${vision}.mm_patch_merge_type`);
    if (merging !== 'spatial_unpad') throw fields.refusal(`${vision}.mm_patch_merge_type`, 'spatial_unpad', merging);
    const strategy = hasClass(store) ? 'default' : 'full';
    const maxTiles = aspectOf(clip);
    return {
      ...{ ...mlp.settings(clip), vision_feature_select_strategy: strategy },
      ...(maxTiles === undefined ? {} : { vision_aspect_ratio: maxTiles }),
    };
  },
  encoder: ({ store }) => ({ model_type: hasClass(store) ? 'clip_vision_model' : 'siglip_vision_model' }),
  processor({ imageSize, grid }, fields) {
    const square = { height: imageSize, width: imageSize };
    const common = { resample: 3, image_grid_pinpoints: pinpointsOf(fields) };
    return grid?.maxTiles === undefined
      ? {
          image_processor_type: 'LlavaNextImageProcessor',
          ...common,
          size: { shortest_edge: imageSize },
          crop_size: square,
        }
      : { image_processor_type: 'LlavaOnevisionImageProcessor', ...common, size: square };
  },
}))();

function hasClass({ tensors }: ModelFile['store']): boolean {
  return tensors.has('v.class_embd');
}

/** `anyres_max_9` of LLaVA-OneVision, whose encoder is a SigLIP; `undefined` for LLaVA-NeXT. */
function aspectOf({ fields, store }: ModelFile): string | undefined {
  const key = `${vision}.image_aspect_ratio`;
  const aspect = fields.string(key, hasClass(store) ? 'anyres' : 'anyres_max_9');
  if (aspect === 'anyres') return undefined;
  if (aspect.startsWith('anyres_max_')) return aspect;
  throw fields.refusal(key, 'anyres or anyres_max_N', aspect);
}

/** Pairs of width and height in the file; config.json has height and width. */
function pinpointsOf(fields: Fields): unknown[][] {
  const key = pinpointsKey;
  const numbers = listOf(fields, key) ?? [];
  if (numbers.length % 2 !== 0) throw fields.refusal(key, 'pairs of numbers', numbers);
  return Array.from({ length: numbers.length / 2 }, (_, pair) => [numbers[2 * pair + 1], numbers[2 * pair]]);
}

const pinpointsKey = 'clip.vision.image_grid_pinpoints';

/** What Qwen2-VL and its successors have in common. */
const qwen = {
  matrix: ['v.mm.2.weight', 0],
  token: '<|image_pad|>',
  /** The minimum and maximum number of pixels default to those of the published models. */
  processor:
    (usualMin: number, usualMax: number): Projector['processor'] =>
    ({ imageSize, patchSize }, fields) => ({
      ...{ image_processor_type: 'Qwen2VLImageProcessor', resample: 3 },
      ...{ patch_size: patchSize, merge_size: imageSize / patchSize },
      min_pixels: fields.count(`${vision}.image_min_pixels`, usualMin),
      max_pixels: fields.count(`${vision}.image_max_pixels`, usualMax),
    }),
  encoder: ({ fields, store }: ModelFile): Settings => ({
    depth: fields.count(`${vision}.block_count`),
    num_heads: fields.count(`${vision}.attention.head_count`),
    spatial_merge_size: fields.count(`${vision}.spatial_merge_size`, 2),
    temporal_patch_size: 2,
    out_hidden_size: store.tensors.get('mm.2.weight')?.shape[0],
  }),
} as const;

/** In files of Qwen2-VL the FFN length differs from that of the matrices, which early files swap. */
const qwen2: Projector = /* @__PURE__ */ (() => ({
  ...qwen,
  decoders: { qwen2vl: describeQwen2Text },
  describe: describeQwen2Vision,
  settings: () => ({ model_type: 'qwen2_vl' }),
  encoder(clip) {
    const { out_hidden_size: dim, ...common } = qwen.encoder(clip);
    const embedDim = clip.fields.count(`${vision}.embedding_length`);
    const [numRows, numColumns] = clip.store.tensors.get('v.blk.0.ffn_up.weight')?.shape ?? [];
    const ffnDim = numRows === embedDim ? numColumns : numRows;
    return { ...common, embed_dim: embedDim, hidden_size: dim, intermediate_size: ffnDim };
  },
  processor: qwen.processor(56 ** 2, 16384 * 28 ** 2),
}))();

const qwen25: Projector = /* @__PURE__ */ (() => ({
  ...qwen,
  decoders: { qwen2vl: describeQwen2Text },
  describe: describeQwen2Vision,
  settings: () => ({ model_type: 'qwen2_5_vl' }),
  encoder(clip) {
    const { fields } = clip;
    const common = qwen.encoder(clip);
    const period = fields.count(`${vision}.n_wa_pattern`);
    const layers = Array.from({ length: fields.count(`${vision}.block_count`) }, (_, layer) => layer);
    return {
      ...common,
      window_size: fields.count(`${vision}.window_size`, 112),
      fullatt_block_indexes: layers.filter((layer) => (layer + 1) % period === 0),
    };
  },
  processor: qwen.processor(56 ** 2, 16384 * 28 ** 2),
}))();

const qwen3: Projector = /* @__PURE__ */ (() => ({
  ...qwen,
  decoders: qwen3Decoders,
  describe: describeQwen3Vision,
  settings: () => ({}),
  encoder(clip) {
    const { fields, store } = clip;
    const key = `${vision}.is_deepstack_layers`;
    const isDeep = listOf(fields, key) ?? [];
    const numLayers = fields.count(`${vision}.block_count`);
    if (isDeep.length > numLayers) throw fields.refusal(key, `one value for each of ${numLayers} layers`, isDeep);
    return {
      ...qwen.encoder(clip),
      num_position_embeddings: store.tensors.get('v.position_embd.weight')?.shape[0],
      deepstack_visual_indexes: isDeep.flatMap((is, layer) => (is === true ? [layer] : [])),
    };
  },
  processor: qwen.processor(256 ** 2, 4096 ** 2),
}))();

/** By `clip.projector_type`. */
const projectors: Readonly<Record<string, Projector>> = {
  ...{ gemma3, idefics3, mlp },
  qwen2vl_merger: qwen2,
  'qwen2.5vl_merger': qwen25,
  qwen3vl_merger: qwen3,
};

/** The projector of a file. @throws {FormatError} for one that is not supported */
export function projectorOf({ fields }: ModelFile): {
  readonly key: string;
  readonly name: string;
  readonly projector: Projector;
} {
  const key = fields.has(`${vision}.projector_type`) ? `${vision}.projector_type` : 'clip.projector_type';
  const name = fields.string(key, 'mlp');
  const found = projectors[name];
  if (found === undefined) throw fields.refusal(key, Object.keys(projectors).join(', '), name);
  return { key, name, projector: found === mlp && fields.has(pinpointsKey) ? mlpTiles : found };
}
