/** Writes image encoders in the format of llama.cpp: separate GGUF files (tools/mtmd/clip-impl.h at 0024aa74). */
import type { StoredTensor } from '@winnow/bytes';
import type { GgufValueInput } from '@winnow/gguf';
import type { HubModel } from '@winnow/hub';
import {
  architectureOf,
  describeModel,
  Fields,
  gatheredRowsView,
  imageParts,
  mmprojName,
  plannedStore,
  reshapedView,
  rowsView,
  textPartOf,
  visionPrefix,
  type EmbedderDescription,
  type ImageParts,
  type ModelFile,
  type VisionGrid,
  type VisionPart,
  type Weight,
} from '@winnow/models';
import { describeValue, FormatError, isRecord, type DType, type Shape } from '@winnow/tensor';
import { layOut, showFusedAttention } from './layout.js';
import { f32, u32, type GgufPairs } from './rope-values.js';
import { checkSamePrograms, checkSameSetting } from './same-model.js';

/** A checkpoint with an image encoder. */
export interface ImageCheckpoint {
  readonly parts: ImageParts;
  /** The language model. */
  readonly text: ModelFile;
  readonly vision: VisionPart;
  /** Weights of the encoder. */
  readonly weights: ReadonlyMap<string, Weight>;
}

/** The content of the file of an encoder. */
export interface MmprojContent {
  readonly pairs: GgufPairs;
  readonly tensors: readonly StoredTensor[];
  readonly notices: readonly string[];
}

/**
 * The parts of a checkpoint; `undefined` for a model that takes no images.
 * @throws {FormatError} for an encoder that files of llama.cpp cannot represent
 */
export function imageCheckpoint(file: ModelFile, description: EmbedderDescription): ImageCheckpoint | undefined {
  const { vision } = description;
  if (vision === undefined) return undefined;
  const parts = imageParts[architectureOf(file).name];
  if (parts === undefined) {
    const message = 'the model has an image encoder, which conversion does not write';
    throw new FormatError({ source: file.fields.source, field: 'vision_config', message });
  }
  const weights = new Map([...description.weights].filter(([name]) => name.startsWith(visionPrefix)));
  return { parts, text: textPartOf(file, parts.text), vision, weights };
}

/**
 * @param text the language model as it will be read
 * @param imageTokenId the image token
 * @throws {FormatError} when the written encoder would be read differently
 */
export async function mmprojContent(
  { parts, vision, weights }: ImageCheckpoint,
  { file, hub }: { readonly file: ModelFile; readonly hub: HubModel },
  processor: Readonly<Record<string, unknown>>,
  text: ModelFile,
  imageTokenId: number,
): Promise<MmprojContent> {
  const { source } = file.fields;
  const pairs = settingsOf(parts.projector(file), vision, file, processor);
  const values = new Map(pairs.map(([key, value]) => [key, plainValue(value)]));
  const shown = new Map<string, Shape>([...weights].map(([name, { shape }]) => [mmprojName(name), shape]));
  if (parts.isFused === true) showFusedAttention(shown);
  const store = plannedStore(source, weights, shown);
  const fields = new Fields(source, (key) => values.get(key));
  const read = await describeModel(text, { file: { format: 'gguf', fields, store }, idOf: () => imageTokenId });
  const readVision = read.vision as VisionPart;
  checkSameVision(source, vision, readVision);
  const tensors = layOut(source, weights, store.requests, dtypeOf).flatMap((tensor) => inFile(tensor, vision));
  const notices = [
    ...processorNotices(processor, readVision.processor?.settings ?? {}, hub.name),
    ...windowNotices(vision, hub.name),
  ];
  return { pairs, tensors, notices };
}

/** Settings to compare because programs do not depend on them. */
const comparedSettings: readonly string[] = [
  'spatial_merge_size',
  'temporal_patch_size',
  'window_size',
  'fullatt_block_indexes',
  'deepstack_visual_indexes',
];

/** @throws {FormatError} naming what would be read differently */
function checkSameVision(source: string, vision: VisionPart, read: VisionPart): void {
  const options = { tokenRow: true };
  checkSamePrograms(source, vision.buildProgram(options), read.buildProgram(options));
  const sizesOf = ({ fields, imageSize, patchSize, numFrames, numRows, grid }: VisionPart): Map<string, unknown> =>
    new Map<string, unknown>([
      ...Object.entries({ imageSize, patchSize, numFrames, numRows, grid }),
      ...comparedSettings.map((name) => [name, fields.raw(name)] as const),
    ]);
  const found = sizesOf(read);
  for (const [field, value] of sizesOf(vision)) checkSameSetting(source, field, value, found.get(field));
}

/** An encoder to write. */
interface Written {
  readonly vision: VisionPart;
  readonly file: ModelFile;
  /** The settings of preprocessor_config.json. */
  readonly processor: Readonly<Record<string, unknown>>;
}

/** Settings of projectors, without the prefix. */
const ownSettings: Readonly<Record<string, (written: Written) => GgufPairs>> = {
  gemma3: ({ vision: { imageSize, patchSize, numRows } }) => [
    ['projector.scale_factor', u32(Math.floor(imageSize / patchSize) / Math.sqrt(numRows))],
  ],
  idefics3: ({ vision: { imageSize }, file, processor: { size } }) => [
    ['projector.scale_factor', u32(file.fields.count('scale_factor', 2))],
    ['preproc_image_size', u32(isRecord(size) ? Number(size['longest_edge']) : 4 * imageSize)],
  ],
  mlp: (written) => (written.vision.grid === undefined ? [] : gridSettings(written.vision.grid, written)),
  qwen2vl_merger: qwenSettings,
  'qwen2.5vl_merger'(written) {
    const { fields } = written.vision;
    const [first = fields.count('depth')] = layersIn(fields, 'fullatt_block_indexes');
    return [
      ...qwenSettings(written),
      ['n_wa_pattern', u32(first + 1)],
      ['window_size', u32(fields.count('window_size'))],
    ];
  },
  qwen3vl_merger(written) {
    const { fields } = written.vision;
    const deep = layersIn(fields, 'deepstack_visual_indexes');
    const value = Array.from({ length: fields.count('depth') }, (_, layer) => deep.includes(layer));
    return [...qwenSettings(written), ['is_deepstack_layers', { type: 'array', elementType: 'bool', value }]];
  },
};

function layersIn(fields: Fields, name: string): readonly number[] {
  return fields.raw(name) as readonly number[];
}

/** Pairs of height and width become pairs of width and height. @throws {FormatError} for anything but pairs */
function gridSettings({ maxTiles }: VisionGrid, { file, processor }: Written): GgufPairs {
  const pairs: unknown = processor[pinpoints];
  if (!Array.isArray(pairs) || !pairs.every((pair) => Array.isArray(pair) && pair.length === 2)) {
    const message = `expected pairs of numbers in preprocessor_config.json, got ${describeValue(pairs)}`;
    throw new FormatError({ source: file.fields.source, field: pinpoints, message });
  }
  const value = Int32Array.from(pairs.flatMap(([height, width]: [number, number]) => [width, height]));
  return [
    [pinpoints, { type: 'array', elementType: 'int32', value }],
    ['mm_patch_merge_type', 'spatial_unpad'],
    ['image_aspect_ratio', maxTiles === undefined ? 'anyres' : `anyres_max_${maxTiles}`],
  ];
}

const pinpoints = 'image_grid_pinpoints';

/** Writes the pixel limits even if the folder relies on defaults, because readers of mmproj files have other defaults for some models. */
function qwenSettings({ vision: { fields }, file, processor }: Written): GgufPairs {
  const size = isRecord(processor['size']) ? processor['size'] : {};
  const pixels = (name: string, edge: string, usual: number): GgufValueInput => {
    const value = processor[name] ?? size[edge] ?? usual;
    if (Number.isSafeInteger(value) && (value as number) > 0 && (value as number) < 2 ** 32)
      return u32(value as number);
    const message = `expected a number of pixels below 2^32 in preprocessor_config.json, got ${describeValue(value)}`;
    throw new FormatError({ source: file.fields.source, field: name, message });
  };
  return [
    ['spatial_merge_size', u32(fields.count('spatial_merge_size'))],
    ['image_min_pixels', pixels('min_pixels', 'shortest_edge', 56 ** 2)],
    ['image_max_pixels', pixels('max_pixels', 'longest_edge', 1280 * 28 ** 2)],
  ];
}

/** The nominal image size that readers require of encoders for any size: that of the learned positions, or 560 pixels. */
function startSize({ fields, imageSize, patchSize, gridOf }: VisionPart): number {
  if (gridOf === undefined) return imageSize;
  return patchSize * Math.floor(Math.sqrt(fields.count('num_position_embeddings', 40 ** 2)));
}

function settingsOf(
  projector: string,
  vision: VisionPart,
  file: ModelFile,
  processor: Readonly<Record<string, unknown>>,
): GgufPairs {
  const { config, patchSize, dim } = vision;
  const activation = vision.fields.raw('hidden_act');
  const numDeep = projector === 'qwen3vl_merger' ? layersIn(vision.fields, 'deepstack_visual_indexes').length : 0;
  const settings: GgufPairs = [
    ['image_size', u32(startSize(vision))],
    ['patch_size', u32(patchSize)],
    ['embedding_length', u32(config.hiddenDim)],
    ['feed_forward_length', u32(config.ffnDim)],
    ['block_count', u32(config.numLayers)],
    ['projection_dim', u32(dim / (1 + numDeep))],
    ['attention.head_count', u32(config.numHeads)],
    ['attention.layer_norm_epsilon', f32(config.normEps)],
    ['image_mean', channels(processor, 'image_mean', file)],
    ['image_std', channels(processor, 'image_std', file)],
    ...(ownSettings[projector]?.({ vision, file, processor }) ?? []),
  ];
  return [
    ['general.architecture', 'clip'],
    ['clip.has_vision_encoder', true],
    ['clip.projector_type', projector],
    ['clip.use_gelu', activation === 'gelu_pytorch_tanh'],
    ['clip.use_silu', activation === 'silu'],
    ...settings.map(([name, value]): GgufPairs[number] => [`clip.vision.${name}`, value]),
  ];
}

function channels(processor: Readonly<Record<string, unknown>>, name: string, file: ModelFile): GgufValueInput {
  const value = processor[name];
  if (Array.isArray(value)) return { type: 'array', elementType: 'float32', value: Float32Array.from(value) };
  const message = 'expected three numbers in preprocessor_config.json';
  throw new FormatError({ source: file.fields.source, field: name, message });
}

/** The value of a pair as readers get it. */
export function plainValue(value: GgufValueInput): unknown {
  return isRecord(value) && 'value' in value ? value['value'] : value;
}

/**
 * Matrices keep their dtype; vectors and positions are written as f32, as by llama.cpp's converters, and so are bf16 convolutions,
 * which llama.cpp cannot compute.
 */
function dtypeOf({ name, shape, dtype, isFloat }: Weight): DType {
  if (name === 'v.patch_embd.weight' && dtype === 'bf16') return 'f32';
  return shape.length < 2 || isFloat === true || name === 'v.position_embd.weight' || dtype === 'f64' ? 'f32' : dtype;
}

/** A tensor with its name and shape in the file; a convolution over frames becomes one tensor per frame. */
function inFile(tensor: StoredTensor, { patchSize, numFrames }: VisionPart): StoredTensor[] {
  const name = mmprojName(tensor.name);
  const [numRows, numColumns] = tensor.shape as readonly [number, number];
  if (tensor.name === 'v.patch_embd.weight') {
    const pixels = patchSize ** 2;
    const rows = reshapedView(tensor, [numRows * 3 * numFrames, pixels]);
    return Array.from({ length: numFrames }, (_, frame) => {
      const own = gatheredRowsView(rows, [numRows * 3, pixels], (row) => row * numFrames + frame);
      return {
        ...reshapedView(own, [numRows, 3, patchSize, patchSize]),
        name: frame === 0 ? name : `${name}.${frame}`,
      };
    });
  }
  // the second of the two rows is zero
  if (tensor.name === 'v.class_embd.weight') return [{ ...reshapedView(rowsView(tensor, 0, 1), [numColumns]), name }];
  if (tensor.name === 'v.image_newline') return [{ ...reshapedView(tensor, [numColumns]), name }];
  return [{ ...tensor, name, read: (target, options) => tensor.read(target, options) }];
}

/** Steps of preprocessing that every reader applies, whatever the settings. */
const alwaysDone = {
  do_resize: true,
  do_center_crop: true,
  do_rescale: true,
  rescale_factor: 1 / 255,
  do_normalize: true,
  do_image_splitting: true,
};

/** Notices about preprocessing settings that are lost, because mmproj files have no keys for them. */
function processorNotices(
  given: Readonly<Record<string, unknown>>,
  settingsRead: Readonly<Record<string, unknown>>,
  name: string,
): string[] {
  const read: Readonly<Record<string, unknown>> = { ...alwaysDone, ...settingsRead };
  const isNeutral = (key: string): boolean => ['image_processor_type', 'image_mean', 'image_std'].includes(key);
  const lost = Object.keys(read).filter(
    (key) => !isNeutral(key) && given[key] !== undefined && JSON.stringify(given[key]) !== JSON.stringify(read[key]),
  );
  if (lost.length === 0) return [];
  const settings = lost.map((key) => `${key} ${JSON.stringify(given[key])} as ${JSON.stringify(read[key])}`).join(', ');
  return [`${name}: mmproj files have no settings of image processors; readers take ${settings}`];
}

/** The window size in pixels that llama.cpp uses regardless of the file (Qwen2.5-VL in tools/mtmd/clip.cpp). */
const windowOfLlamaCpp = 112;

/** A notice when the window size, which Winnow reads from the file, differs from that of llama.cpp. */
function windowNotices({ fields }: VisionPart, name: string): string[] {
  const width = fields.raw('window_size') ?? windowOfLlamaCpp;
  if (width === windowOfLlamaCpp) return [];
  return [`${name}: llama.cpp computes windows of ${windowOfLlamaCpp} pixels, those of this encoder have ${width}`];
}
