/**
 * Image encoders in files of their own, as llama.cpp keeps them (`mmproj-*.gguf`; tools/mtmd/clip-impl.h and clip.cpp at 0024aa74):
 * their settings and tensors under the names of this package, for the same descriptions as those of Hugging Face folders.
 */
import { FormatError } from '@winnow/tensor';
import { Fields } from '../file/fields.js';
import type { RequestedStore, Weight } from '../file/weights.js';
import type { ModelDescription, ModelFile, VisionPart } from '../program/architecture.js';
import { renamedStore, visionLanguageParts, type TextPart } from '../settings/text-part.js';
import { visionShape, withShapes } from '../vision/checkpoint.js';
import { describeGemmaVision } from './gemma3-vision.js';
import { describeGemma3 } from './gemma3.js';
import { describeLlama } from './llama.js';
import { describeClip } from './llava.js';
import { describeTiles, smolvlmText } from './smolvlm.js';
import { checkWindow, type DescribeDecoder } from './with-images.js';

/** An image encoder beside the file of its language model. */
export interface MmprojFile {
  readonly file: ModelFile;
  /** The id of a token of the language model as it is written in the vocabulary. */
  readonly idOf: (text: string) => number | undefined;
}

/** Language models by `general.architecture`. */
const decoders: Readonly<Record<string, DescribeDecoder>> = { llama: describeLlama, gemma3: describeGemma3 };

interface Projector {
  readonly decoder: string;
  /** The matrix that ends in the embedding length of the language model, and the axis of that length. */
  readonly matrix: readonly [name: string, axis: 0 | 1];
  readonly describe: (file: ModelFile, weights: Map<string, Weight>, imageTokenId: number) => VisionPart;
  /** Settings of config.json besides those of the encoder. */
  readonly settings: (clip: ModelFile) => Readonly<Record<string, unknown>>;
  /** Settings of preprocessor_config.json for squares of `size` pixels: files have none, so they are those of the published models. */
  readonly processor: (size: number, fields: Fields) => Readonly<Record<string, unknown>>;
}

/** By `clip.projector_type`. */
const projectors: Readonly<Record<string, Projector>> = {
  gemma3: {
    decoder: 'gemma3',
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
    processor: (size) => ({
      image_processor_type: 'Gemma3ImageProcessor',
      resample: 2,
      size: { height: size, width: size },
    }),
  },
  idefics3: {
    decoder: 'llama',
    matrix: ['v.mm.proj.weight', 0],
    describe: describeTiles,
    settings: ({ fields }) => ({ scale_factor: fields.count(`${vision}.projector.scale_factor`) }),
    processor: (size, fields) => ({
      ...{ image_processor_type: 'Idefics3ImageProcessor', resample: 1, max_image_size: { longest_edge: size } },
      size: { longest_edge: fields.count(`${vision}.preproc_image_size`, 4 * size) },
    }),
  },
  mlp: {
    decoder: 'llama',
    matrix: ['v.mm.2.weight', 0],
    describe: describeClip,
    settings: ({ fields, store }) => ({
      vision_feature_layer: featureLayer(fields),
      multimodal_projector_bias: store.tensors.has('mm.0.bias'),
    }),
    processor: (size) => ({
      ...{ image_processor_type: 'CLIPImageProcessor', resample: 3, size: { shortest_edge: size } },
      crop_size: { height: size, width: size },
    }),
  },
};

/** Prefix of the settings of the encoder. */
const vision = 'clip.vision';

/** Without the setting, the file has the layers that are used. @throws {FormatError} for several layers */
function featureLayer(fields: Fields): unknown {
  const key = `${vision}.feature_layer`;
  const layers = Array.from((fields.raw(key) ?? [-1]) as ArrayLike<unknown>);
  if (layers.length === 1) return layers[0];
  throw fields.refusal(key, 'one layer', layers);
}

/**
 * Describes a language model and adds the image encoder of another file to it.
 * @throws {FormatError} for a projector that is not supported, and for an encoder of another language model
 */
export async function describeWithMmproj(file: ModelFile, mmproj: MmprojFile): Promise<ModelDescription> {
  const { fields } = mmproj.file;
  const kind = fields.string('general.architecture');
  if (kind !== 'clip') throw fields.refusal('general.architecture', 'clip, an image encoder', kind);
  const key = fields.has(`${vision}.projector_type`) ? `${vision}.projector_type` : 'clip.projector_type';
  const name = fields.string(key, 'mlp');
  const projector = projectors[name];
  if (projector === undefined) throw fields.refusal(key, Object.keys(projectors).join(', '), name);
  if (fields.has(`${vision}.image_grid_pinpoints`)) {
    const message = 'expected one size of images, got several: LLaVA 1.6 is not supported';
    throw new FormatError({ source: fields.source, field: `${vision}.image_grid_pinpoints`, message });
  }
  const architecture = file.fields.string('general.architecture');
  const describe = architecture === projector.decoder ? decoders[architecture] : undefined;
  if (describe === undefined) throw fields.refusal(key, `an encoder for ${architecture}`, name);
  const imageTokenId = mmproj.idOf('<image>') ?? 0;
  const decoder = await describe(file, imageTokenId);
  const clip = clipFile(mmproj.file, projector);
  checkLength(clip.store, projector, decoder.config.hiddenDim);
  const part = projector.describe(clip, decoder.weights, imageTokenId);
  checkWindow(decoder, part, file.fields, `${architecture}.attention.sliding_window`);
  if (part.frame !== undefined && mmproj.idOf('<image>') === undefined) {
    const message = 'expected a vocabulary with the token <image>, which stands for a tile of an image';
    throw new FormatError({ source: file.fields.source, field: 'tokenizer.ggml.tokens', message });
  }
  const marks = part.marks ?? (part.frame === undefined ? { marker: '<image>', before: '', after: '' } : undefined);
  const settings = { ...projector.processor(part.imageSize, fields), ...normalizationOf(fields) };
  const processor = { source: fields.source, settings };
  return { ...decoder, vision: { ...part, ...(marks === undefined ? {} : { marks }), processor } };
}

/** @throws {FormatError} when the rows of images do not have the length of the language model's embeddings */
function checkLength(store: RequestedStore, { matrix: [name, axis] }: Projector, hiddenDim: number): void {
  const length = store.tensors.get(name)?.shape[axis];
  if (length === undefined || length === hiddenDim) return;
  const message = `expected ${hiddenDim}, the embedding length of the language model, got ${length}: the file belongs to another model`;
  throw new FormatError({ source: store.name, field: 'embedding length', message });
}

function normalizationOf(fields: Fields): Readonly<Record<string, unknown>> {
  const channels = (key: string): unknown[] => {
    const value = fields.raw(key);
    if (Array.isArray(value) || ArrayBuffer.isView(value)) return Array.from(value as ArrayLike<unknown>);
    throw fields.refusal(key, 'three numbers', value);
  };
  return { image_mean: channels(`${vision}.image_mean`), image_std: channels(`${vision}.image_std`) };
}

/** The file with the settings of a config.json, and the names and shapes of this package. */
function clipFile(file: ModelFile, projector: Projector): ModelFile {
  const { fields, store } = file;
  const usesSilu = fields.boolean('clip.use_silu', false);
  const usesGelu = fields.boolean('clip.use_gelu', false);
  const hiddenDim = fields.count(`${vision}.embedding_length`);
  const config = {
    hidden_size: hiddenDim,
    intermediate_size: fields.count(`${vision}.feed_forward_length`),
    num_hidden_layers: fields.count(`${vision}.block_count`),
    num_attention_heads: fields.count(`${vision}.attention.head_count`),
    layer_norm_eps: fields.number(`${vision}.attention.layer_norm_epsilon`),
    image_size: fields.count(`${vision}.image_size`),
    patch_size: fields.count(`${vision}.patch_size`),
    hidden_act: usesSilu ? 'silu' : usesGelu ? 'gelu_pytorch_tanh' : 'quick_gelu',
  };
  const json = { vision_config: config, ...projector.settings(file) };
  // older converters swapped the matrices of the FFN
  const down = store.tensors.get('v.blk.0.ffn_down.weight')?.shape;
  const isSwapped = down !== undefined && down[1] === hiddenDim && down[0] !== hiddenDim;
  const named = renamedStore(store, (name) => ownName(isSwapped ? swapped(name) : name));
  return { format: 'gguf', fields: Fields.ofJson(fields.source, json), store: withShapes(named, visionShape) };
}

function swapped(name: string): string {
  return name.replace(/ffn_(up|down)/, (_, which) => (which === 'up' ? 'ffn_down' : 'ffn_up'));
}

const ownNames: readonly (readonly [RegExp, string])[] = [
  [/^(v\.blk\.\d+\.)ln1\./, '$1attn_norm.'],
  [/^(v\.blk\.\d+\.)ln2\./, '$1ffn_norm.'],
  [/^(v\.blk\.\d+\.)attn_out\./, '$1attn_output.'],
  [/^v\.class_embd$/, 'v.class_embd.weight'],
  [/^mm\.model\.fc\./, 'v.mm.proj.'],
  [/^mm\./, 'v.mm.'],
];

function ownName(name: string): string {
  const found = ownNames.find(([pattern]) => pattern.test(name));
  return found === undefined ? name : name.replace(...found);
}

/** The name of a tensor in files of llama.cpp. */
export function mmprojName(name: string): string {
  const found = fileNames.find(([pattern]) => pattern.test(name));
  return found === undefined ? name : name.replace(...found);
}

const fileNames: readonly (readonly [RegExp, string])[] = [
  [/^(v\.blk\.\d+\.)attn_norm\./, '$1ln1.'],
  [/^(v\.blk\.\d+\.)ffn_norm\./, '$1ln2.'],
  [/^(v\.blk\.\d+\.)attn_output\./, '$1attn_out.'],
  [/^v\.class_embd\.weight$/, 'v.class_embd'],
  [/^v\.mm\.proj\./, 'mm.model.fc.'],
  [/^v\.mm\./, 'mm.'],
];

/** How a checkpoint with images is two files of llama.cpp. */
export interface ImageParts {
  /** `clip.projector_type`. */
  readonly projector: string;
  /** Its language model. */
  readonly text: TextPart;
}

/** By architecture. */
export const imageParts: Readonly<Record<string, ImageParts>> = {
  gemma3: { projector: 'gemma3', text: visionLanguageParts },
  llava: { projector: 'mlp', text: visionLanguageParts },
  smolvlm: { projector: 'idefics3', text: smolvlmText },
};
