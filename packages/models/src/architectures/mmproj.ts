/**
 * Image encoders in separate files, as llama.cpp writes them (`mmproj-*.gguf`; tools/mtmd/clip-impl.h and clip.cpp at 0024aa74).
 * Their settings and tensors get the names of this package, so that they are described like those of Hugging Face folders.
 */
import type { StoredTensor } from '@winnow/bytes';
import { FormatError, formatShape } from '@winnow/tensor';
import { Fields } from '../file/fields.js';
import { reshapedView } from '../file/gathered-views.js';
import { interleavedView } from '../file/interleaved-view.js';
import type { RequestedStore } from '../file/weights.js';
import type { ModelDescription, ModelFile, VisionPart } from '../program/architecture.js';
import { renamedStore, visionLanguageParts, type TextPart } from '../settings/text-part.js';
import { listOf } from '../settings/recurrent-settings.js';
import { visionShape, withShapes } from '../vision/checkpoint.js';
import { qwenTextPart } from '../vision/qwen-tower.js';
import { projectorOf, vision, type Projector } from './mmproj-projectors.js';
import { smolvlmText } from './smolvlm.js';
import { checkWindow } from './with-images.js';

/** An image encoder in a separate file. */
export interface MmprojFile {
  readonly file: ModelFile;
  /** Looks up the id of a token of the language model by its text. */
  readonly idOf: (text: string) => number | undefined;
}

/**
 * Describes a language model with the image encoder of another file.
 * @throws {FormatError} for an unsupported projector, and for an encoder that belongs to another language model
 */
export async function describeWithMmproj(file: ModelFile, mmproj: MmprojFile): Promise<ModelDescription> {
  const { fields } = mmproj.file;
  const kind = fields.string('general.architecture');
  if (kind !== 'clip') throw fields.refusal('general.architecture', 'clip, an image encoder', kind);
  const { key, name, projector } = projectorOf(mmproj.file);
  const architecture = file.fields.string('general.architecture');
  const describe = projector.decoders[architecture];
  if (describe === undefined) throw fields.refusal(key, `an encoder for ${architecture}`, name);
  const { token = '<image>' } = projector;
  const tokenId = mmproj.idOf(token);
  if (projector.token !== undefined && tokenId === undefined) {
    const message = `expected a vocabulary with the token ${token}, which stands for images`;
    throw new FormatError({ source: file.fields.source, field: 'tokenizer.ggml.tokens', message });
  }
  const imageTokenId = tokenId ?? 0;
  const decoder = await describe(file, imageTokenId);
  const clip = clipFile(mmproj.file, projector);
  checkLength(clip.store, projector, decoder.config.hiddenDim);
  const part = projector.describe(clip, decoder.weights, imageTokenId);
  checkWindow(decoder, part, file.fields, `${architecture}.attention.sliding_window`);
  checkFurtherRows(decoder, part, fields);
  const marks = part.marks ?? (projector.token === undefined ? { marker: token, before: '', after: '' } : undefined);
  const settings = { ...projector.processor(part, fields), ...normalizationOf(fields) };
  const processor = { source: fields.source, settings };
  const constants = new Map([...decoder.constants, ...(part.constants ?? [])]);
  return { ...decoder, constants, vision: { ...part, ...(marks === undefined ? {} : { marks }), processor } };
}

/** @throws {FormatError} when encoder and language model disagree on the number of layers that add rows of images (DeepStack) */
function checkFurtherRows({ config }: ModelDescription, { dim }: VisionPart, fields: Fields): void {
  const { hiddenDim, imageDim = hiddenDim } = config;
  if (dim === imageDim) return;
  const expected = `${imageDim / hiddenDim - 1} layers, as n_deepstack_layers of the language model`;
  throw fields.refusal(`${vision}.is_deepstack_layers`, expected, dim / hiddenDim - 1);
}

/** @throws {FormatError} when the rows of images do not have the hidden size of the language model */
function checkLength(store: RequestedStore, { matrix: [name, axis] }: Projector, hiddenDim: number): void {
  const length = store.tensors.get(name)?.shape[axis];
  if (length === undefined || length === hiddenDim) return;
  const message = `expected ${hiddenDim}, the embedding length of the language model, got ${length}: the file belongs to another model`;
  throw new FormatError({ source: store.name, field: 'embedding length', message });
}

function normalizationOf(fields: Fields): Readonly<Record<string, unknown>> {
  const channels = (key: string): unknown[] => {
    const list = listOf(fields, key);
    if (list === undefined) throw fields.refusal(key, 'three numbers', fields.raw(key));
    return list;
  };
  return { image_mean: channels(`${vision}.image_mean`), image_std: channels(`${vision}.image_std`) };
}

/** The file with settings as in config.json, and with the tensor names and shapes of this package. */
function clipFile(file: ModelFile, projector: Projector): ModelFile {
  const { fields, store } = file;
  const usesSilu = fields.boolean('clip.use_silu', false);
  const usesGelu = fields.boolean('clip.use_gelu', false);
  const hiddenDim = fields.count(`${vision}.embedding_length`);
  const config = {
    hidden_size: hiddenDim,
    intermediate_size: fields.raw(`${vision}.feed_forward_length`),
    num_hidden_layers: numLayersOf(file),
    num_attention_heads: fields.count(`${vision}.attention.head_count`),
    layer_norm_eps: fields.number(`${vision}.attention.layer_norm_epsilon`),
    image_size: fields.count(`${vision}.image_size`),
    patch_size: fields.count(`${vision}.patch_size`),
    hidden_act: usesSilu ? 'silu' : usesGelu ? 'gelu_pytorch_tanh' : 'quick_gelu',
    ...projector.encoder?.(file),
  };
  const json = { vision_config: config, ...projector.settings(file) };
  // older converters swapped the matrices of the FFN
  const down = store.tensors.get('v.blk.0.ffn_down.weight')?.shape;
  const isSwapped = down !== undefined && down[1] === hiddenDim && down[0] !== hiddenDim;
  const named = withJoinedFrames(renamedStore(store, (name) => ownName(isSwapped ? swapped(name) : name)));
  return { format: 'gguf', fields: Fields.ofJson(fields.source, json), store: withShapes(named, visionShape) };
}

/** @throws {FormatError} for more layers than tensors */
function numLayersOf({ fields, store }: ModelFile): number {
  const key = `${vision}.block_count`;
  const numLayers = fields.count(key);
  const { size } = store.tensors;
  if (numLayers > size) throw fields.refusal(key, `at most ${size}, the number of tensors`, numLayers);
  return numLayers;
}

function swapped(name: string): string {
  return name.replace(/ffn_(up|down)/, (_, which) => (which === 'up' ? 'ffn_down' : 'ffn_up'));
}

/**
 * Converters split convolutions over two frames into one per frame, `[E, 3, P, P]`. Joins them to the matrix of checkpoints,
 * `[E, 3 2 P P]`.
 * @throws {FormatError} for frames that are not of rank 4, and when they differ in shape or dtype
 */
function withJoinedFrames(store: RequestedStore): RequestedStore {
  const name = 'v.patch_embd.weight';
  const frames = [store.tensors.get(name), store.tensors.get(`${name}.1`)];
  const [first, second] = frames;
  if (first === undefined || second === undefined) return store;
  const kindOf = ({ dtype, shape }: StoredTensor): string => `${dtype} ${formatShape(shape)}`;
  const refusal = (field: string, expected: string, found: StoredTensor): FormatError =>
    new FormatError({ source: store.name, field, message: `expected ${expected}, got ${kindOf(found)}` });
  if (first.shape.length !== 4) throw refusal(name, 'a convolution of four dimensions', first);
  if (kindOf(first) !== kindOf(second))
    throw refusal(second.name, `a convolution as ${name}, ${kindOf(first)}`, second);
  const [numOutputs, numChannels, height, width] = first.shape as readonly [number, number, number, number];
  const rows = [first, second].map((frame) => reshapedView(frame, [numOutputs * numChannels, height * width]));
  const joined = reshapedView(interleavedView(name, rows), [numOutputs, numChannels * 2 * height * width]);
  const tensors = new Map([...store.tensors, [name, joined]]);
  tensors.delete(second.name);
  return { ...store, tensors, close: () => store.close() };
}

const ownNames: readonly (readonly [RegExp, string])[] = [
  [/^(v\.blk\.\d+\.)ln1\./, '$1attn_norm.'],
  [/^(v\.blk\.\d+\.)ln2\./, '$1ffn_norm.'],
  [/^(v\.blk\.\d+\.)attn_out\./, '$1attn_output.'],
  [/^v\.class_embd$/, 'v.class_embd.weight'],
  [/^model\.image_newline$/, 'v.image_newline'],
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
  [/^v\.(class_embd|image_newline)\.weight$/, 'v.$1'],
  [/^v\.mm\.proj\./, 'mm.model.fc.'],
  [/^v\.mm\./, 'mm.'],
];

/** How a multimodal checkpoint is divided into two files of llama.cpp. */
export interface ImageParts {
  /** `clip.projector_type`. */
  readonly projector: (file: ModelFile) => string;
  /** The language model. */
  readonly text: TextPart;
  /** Whether q, k and v of the encoder are fused. Default: they are separate matrices. */
  readonly isFused?: true;
}

/** By architecture. */
export const imageParts: Readonly<Record<string, ImageParts>> = {
  gemma3: { projector: () => 'gemma3', text: visionLanguageParts },
  llava: { projector: () => 'mlp', text: visionLanguageParts },
  'llava-next': { projector: () => 'mlp', text: visionLanguageParts },
  'llava-onevision': { projector: () => 'mlp', text: visionLanguageParts },
  smolvlm: { projector: () => 'idefics3', text: smolvlmText },
  qwen2vl: {
    projector: ({ fields }) => (fields.string('model_type') === 'qwen2_vl' ? 'qwen2vl_merger' : 'qwen2.5vl_merger'),
    text: qwenTextPart,
  },
  qwen3vl: { projector: () => 'qwen3vl_merger', text: qwenTextPart, isFused: true },
  qwen3vlmoe: { projector: () => 'qwen3vl_merger', text: qwenTextPart, isFused: true },
};
