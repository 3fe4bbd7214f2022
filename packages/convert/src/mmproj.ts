/** Writes image encoders as llama.cpp keeps them, in GGUF files of their own (tools/mtmd/clip-impl.h at 0024aa74). */
import type { StoredTensor } from '@winnow/bytes';
import type { GgufValueInput } from '@winnow/gguf';
import type { HubModel } from '@winnow/hub';
import {
  architectureOf,
  describeModel,
  Fields,
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
  type VisionPart,
  type Weight,
} from '@winnow/models';
import { FormatError, isRecord, type DType, type Shape } from '@winnow/tensor';
import { layOut } from './layout.js';
import { f32, u32, type GgufPairs } from './rope-values.js';
import { checkSamePrograms } from './same-model.js';

/** A checkpoint with images. */
export interface ImageCheckpoint {
  readonly parts: ImageParts;
  /** Its language model. */
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
 * The parts of a checkpoint; `undefined` when it takes no images.
 * @throws {FormatError} for an encoder that files of llama.cpp cannot hold
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
 * @param imageTokenId the token of images
 * @throws {FormatError} when the encoder would be read as another one
 */
export async function mmprojContent(
  { parts: { projector }, vision, weights }: ImageCheckpoint,
  { file, hub }: { readonly file: ModelFile; readonly hub: HubModel },
  processor: Readonly<Record<string, unknown>>,
  text: ModelFile,
  imageTokenId: number,
): Promise<MmprojContent> {
  const { source } = file.fields;
  const pairs = settingsOf(projector, vision, file, processor);
  const values = new Map(pairs.map(([key, value]) => [key, plainValue(value)]));
  const shown = new Map<string, Shape>([...weights].map(([name, { shape }]) => [mmprojName(name), shape]));
  const store = plannedStore(source, weights, shown);
  const fields = new Fields(source, (key) => values.get(key));
  const idOf = (token: string): number | undefined => (token === '<image>' ? imageTokenId : undefined);
  const read = await describeModel(text, { file: { format: 'gguf', fields, store }, idOf });
  const readVision = read.vision as VisionPart;
  const options = { tokenRow: true };
  checkSamePrograms(source, vision.buildProgram(options), readVision.buildProgram(options));
  const tensors = layOut(source, weights, store.requests, dtypeOf).map((tensor) => inFile(tensor, vision));
  return { pairs, tensors, notices: processorNotices(processor, readVision.processor?.settings ?? {}, hub.name) };
}

function settingsOf(
  projector: string,
  { config, imageSize, patchSize, dim, numRows }: VisionPart,
  file: ModelFile,
  processor: Readonly<Record<string, unknown>>,
): GgufPairs {
  const section = file.fields.raw('vision_config');
  const usual = projector === 'mlp' ? 'quick_gelu' : 'gelu_pytorch_tanh';
  const activation = (isRecord(section) ? section['hidden_act'] : undefined) ?? usual;
  const size = processor['size'];
  const own: Readonly<Record<string, GgufPairs>> = {
    gemma3: [['projector.scale_factor', u32(Math.floor(imageSize / patchSize) / Math.sqrt(numRows))]],
    idefics3: [
      ['projector.scale_factor', u32(file.fields.count('scale_factor', 2))],
      ['preproc_image_size', u32(isRecord(size) ? Number(size['longest_edge']) : 4 * imageSize)],
    ],
  };
  const vision: GgufPairs = [
    ['image_size', u32(imageSize)],
    ['patch_size', u32(patchSize)],
    ['embedding_length', u32(config.hiddenDim)],
    ['feed_forward_length', u32(config.ffnDim)],
    ['block_count', u32(config.numLayers)],
    ['projection_dim', u32(dim)],
    ['attention.head_count', u32(config.numHeads)],
    ['attention.layer_norm_epsilon', f32(config.normEps)],
    ['image_mean', channels(processor, 'image_mean', file)],
    ['image_std', channels(processor, 'image_std', file)],
    ...(own[projector] ?? []),
  ];
  return [
    ['general.architecture', 'clip'],
    ['clip.has_vision_encoder', true],
    ['clip.projector_type', projector],
    ['clip.use_gelu', activation === 'gelu_pytorch_tanh'],
    ['clip.use_silu', activation === 'silu'],
    ...vision.map(([name, value]): GgufPairs[number] => [`clip.vision.${name}`, value]),
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

/** Matrices keep their dtype; vectors and positions are f32, as the converters of llama.cpp write them. */
function dtypeOf({ name, shape, dtype, isFloat }: Weight): DType {
  return shape.length < 2 || isFloat === true || name === 'v.position_embd.weight' || dtype === 'f64' ? 'f32' : dtype;
}

/** The name and the shape of a tensor in the file. */
function inFile(tensor: StoredTensor, { patchSize }: VisionPart): StoredTensor {
  const name = mmprojName(tensor.name);
  const [numRows, numColumns] = tensor.shape as readonly [number, number];
  if (tensor.name === 'v.patch_embd.weight') {
    return { ...reshapedView(tensor, [numRows, 3, patchSize, patchSize]), name };
  }
  // of two rows the second is zero
  if (tensor.name === 'v.class_embd.weight') return { ...reshapedView(rowsView(tensor, 0, 1), [numColumns]), name };
  return { ...tensor, name, read: (target, options) => tensor.read(target, options) };
}

/** What every reader does with images, whether their settings say so or not. */
const alwaysDone = {
  do_resize: true,
  do_center_crop: true,
  do_rescale: true,
  do_normalize: true,
  do_image_splitting: true,
};

/** What readers cannot know about the images: files have no settings of processors. */
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
