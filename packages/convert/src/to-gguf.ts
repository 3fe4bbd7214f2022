/** Writes a model as GGUF files that Winnow and llama.cpp read. */
import type { StoredTensor } from '@winnow/bytes';
import { ggufSplitName, writeGguf } from '@winnow/gguf';
import type { HubFiles } from '@winnow/hub';
import {
  architectures,
  checkQuantizeType,
  Fields,
  mainDType,
  plannedStore,
  quantizedDType,
  quantizeTypes,
  reencodedView,
  tokenLayerFiles,
  type EmbedderDescription,
  type KeptWeight,
  type ModelFile,
  type QuantizeType,
  type Weight,
} from '@winnow/models';
import { ArgumentError, checkOptions, FormatError, usesImportance, type DType, type Shape } from '@winnow/tensor';
import { foldedFactors } from './fold-factors.js';
import { ggufSettings, windowInGguf } from './gguf-settings.js';
import { textFile } from './hub-file.js';
import { importanceNames, importanceOf, type ImportanceMatrix } from './imatrix.js';
import { layOut, showFusedAttention } from './layout.js';
import { imageCheckpoint, mmprojContent, plainValue, type ImageCheckpoint, type MmprojContent } from './mmproj.js';
import { describerOf, rankingPairs } from './ranking.js';
import { reorderWeights } from './reorder.js';
import { u32, type GgufPairs } from './rope-values.js';
import { checkSameModel } from './same-model.js';
import { tokenizerToGguf } from './tokenizer-to-gguf.js';
import {
  convertNames,
  WriteProgress,
  type ConvertOptions,
  type ConvertResult,
  type ConvertSource,
} from './conversion.js';
import { piecesOf, splitBySize, writeTogether, type ConvertTarget } from './write-files.js';

/** Values of `general.file_type`. */
const fileTypes: Partial<Readonly<Record<DType, number>>> = {
  f32: 0,
  f16: 1,
  q4_0: 2,
  q4_1: 3,
  q8_0: 7,
  q5_0: 8,
  q5_1: 9,
  q2_K: 10,
  q3_K: 12,
  q4_K: 15,
  q5_K: 17,
  q6_K: 18,
  iq4_nl: 25,
  iq4_xs: 30,
  bf16: 32,
  mxfp4: 38,
};

interface GgufContent {
  readonly pairs: GgufPairs;
  readonly tensors: readonly StoredTensor[];
  readonly kept: readonly KeptWeight[];
  readonly notices: readonly string[];
  /** The image encoder. */
  readonly mmproj?: MmprojContent | undefined;
}

/**
 * Writes `fileName` (or its parts, with `splitSizeBytes`) with settings, tokenizer and tensors, and the image encoder, if the model
 * has one, as `mmproj-` plus that name.
 * @throws {FormatError} for a model that is not supported, or whose settings GGUF cannot represent
 * @throws {ArgumentError} for an unsupported weight type, and for quantized weights that would be requantized
 * @throws {IoError} when reading or writing fails; no new files remain then
 */
export async function convertToGguf(
  source: ConvertSource,
  target: ConvertTarget,
  fileName: string,
  options: ConvertOptions = {},
): Promise<ConvertResult> {
  checkOptions(options, convertNames);
  const { type, splitSizeBytes = Number.POSITIVE_INFINITY, signal } = options;
  if (type !== undefined) checkQuantizeType('type', type);
  checkImportance(options);
  const content = source.format === 'gguf' ? fromGguf(source, options) : await fromFolder(source, options);
  const { tensors, kept, notices, mmproj } = content;
  const pairs = withFileType(content.pairs, tensors, type);
  const all = [...tensors, ...(mmproj?.tensors ?? [])];
  const progress = new WriteProgress(all, options);
  const parts = splitBySize(tensors, splitSizeBytes);
  return writeTogether(target, async (files) => {
    let sizeBytes = 0;
    const write = async (name: string, metadata: GgufPairs, written: readonly StoredTensor[]): Promise<void> => {
      const file = await writeGguf(await files.open(name), {
        metadata,
        tensors: written.map((tensor) => ({
          name: tensor.name,
          dtype: tensor.dtype,
          shape: tensor.shape,
          data: piecesOf(tensor, progress, signal),
        })),
        ...(signal === undefined ? {} : { signal }),
      });
      sizeBytes += file.sizeBytes;
    };
    for (const [partIndex, part] of parts.entries()) {
      const name =
        parts.length === 1
          ? fileName
          : ggufSplitName({ prefix: fileName.replace(/\.gguf$/, ''), partIndex, numParts: parts.length });
      const metadata: GgufPairs = partIndex === 0 ? [...pairs] : [];
      if (parts.length > 1) {
        metadata.push(
          ['split.no', { type: 'uint16', value: partIndex }],
          ['split.count', { type: 'uint16', value: parts.length }],
          ['split.tensors.count', { type: 'int32', value: tensors.length }],
        );
      }
      await write(name, metadata, part);
    }
    if (mmproj !== undefined) {
      await write(`mmproj-${fileName}`, withFileType(mmproj.pairs, mmproj.tensors, undefined), mmproj.tensors);
    }
    return { files: [...files.names], sizeBytes, numTensors: all.length, kept, notices };
  });
}

/** Rewrites a GGUF file with other weight types. */
function fromGguf(
  { gguf }: Extract<ConvertSource, { format: 'gguf' }>,
  { type, allowRequantize = false, importance }: ConvertOptions,
): GgufContent {
  const kept: KeptWeight[] = [];
  const weighted = new WeightedColumns(importance);
  const isTied = !gguf.tensors.has('output.weight');
  const architecture = gguf.metadata.getString('general.architecture', '');
  const numLayers = Number(gguf.metadata.get(`${architecture}.block_count`)?.value ?? 0);
  const tensors = [...gguf.tensors.values()].map((tensor) => {
    if (type === undefined) return tensor;
    const dtype = chosenDType(tensor, { dtype: type, isTied, numLayers, allowRequantize }, kept);
    return reencodedView(tensor, dtype, weighted.of(tensor.name, tensor.shape));
  });
  const pairs = [...gguf.metadata].filter(([key]) => !key.startsWith('split.')) as GgufPairs;
  return { pairs, tensors, kept, notices: weighted.notices() };
}

/** @throws {ArgumentError} when the importance would have no effect */
function checkImportance({ type, importance }: ConvertOptions): void {
  if (importance === undefined || (type !== undefined && usesImportance(mainDType(type)))) return;
  const expected = `a type whose scales are searched for: ${quantizeTypes.filter(usesImportance).join(', ')} or q4_K_M`;
  throw new ArgumentError({ argument: 'type', expected, actual: String(type) });
}

/** Looks up the importance of columns, and counts how many matrices have one. */
class WeightedColumns {
  readonly #importance: ImportanceMatrix | undefined;
  readonly #used = new Set<string>();

  constructor(importance: ImportanceMatrix | undefined) {
    this.#importance = importance;
  }

  readonly of = (name: string, shape: Shape): Float32Array | undefined => {
    if (this.#importance === undefined || shape.length < 2) return undefined;
    const found = importanceOf(this.#importance, name, shape);
    if (found !== undefined) for (const each of importanceNames(name)) this.#used.add(each);
    return found;
  };

  notices(): string[] {
    if (this.#importance === undefined) return [];
    const { source, columns } = this.#importance;
    const others = [...columns.keys()].filter((name) => !this.#used.has(name));
    if (this.#used.size === 0) {
      const message = `expected importances of matrices of this model, got ${others.slice(0, 3).join(', ')}`;
      throw new FormatError({ source, field: 'tensors', message });
    }
    return others.length === 0 ? [] : [`${source}: importances of ${others.length} matrices are not of this model`];
  }
}

interface Choice {
  readonly dtype: QuantizeType;
  readonly isTied: boolean;
  readonly numLayers: number;
  readonly allowRequantize: boolean;
}

/** @throws {ArgumentError} for quantized weights that would be requantized */
function chosenDType(
  weight: { readonly name: string; readonly shape: Shape; readonly dtype: DType; readonly isFloat?: true },
  choice: Choice,
  kept: KeptWeight[],
): DType {
  const { name, dtype: own } = weight;
  const { dtype, reason, wouldRequantize } = quantizedDType(weight, choice);
  if (reason === undefined) return dtype;
  if (wouldRequantize === true) {
    throw new ArgumentError({
      argument: `type of ${name}`,
      expected: `unquantized weights, or allowRequantize: true to requantize them as ${choice.dtype}`,
      actual: own,
    });
  }
  kept.push({ name, dtype: own, reason });
  return own;
}

/** The image encoder of a checkpoint, if the folder specifies how images are preprocessed. */
async function encoderOf(
  images: ImageCheckpoint | undefined,
  source: Extract<ConvertSource, { format: 'safetensors' }>,
  whole: EmbedderDescription,
  text: ModelFile,
  notices: string[],
): Promise<MmprojContent | undefined> {
  if (images === undefined) return undefined;
  const processor = source.hub.preprocessorConfig?.value;
  if (processor === undefined) {
    const missing = 'the folder has no preprocessor_config.json';
    notices.push(`only the language model is written, without the image encoder: ${missing}`);
    return undefined;
  }
  const content = await mmprojContent(images, source, processor, text, whole.config.imageTokenId as number);
  notices.push(...content.notices);
  return content;
}

/** @throws {FormatError} for an architecture that only folders have */
function checkArchitecture(fields: Fields, architecture: string): void {
  if (architectures.some(({ ggufNames }) => ggufNames.includes(architecture))) return;
  throw fields.refusal('model_type', 'an architecture that GGUF files have', architecture);
}

/** @throws {FormatError} for a model whose only outputs are multi-vectors */
function checkOutputs({ fields }: ModelFile, { weights }: EmbedderDescription): void {
  if (!weights.has('colbert_linear.weight')) return;
  throw fields.refusal('layers', 'none that compute multi-vectors, which GGUF files cannot store', 'colbert_linear');
}

/** Notices about layers of an embedding model for which GGUF has no tensors. */
async function lostLayers(files: HubFiles, { config }: EmbedderDescription): Promise<string[]> {
  const lost = await tokenLayerFiles(config.architecture, (name) => files.has(name));
  if (lost.length === 0) return [];
  const names = lost.map(([, file]) => file).join(' and ');
  return [`left out ${names}: GGUF files have no layers of lexical weights and multi-vectors`];
}

async function fromFolder(
  source: Extract<ConvertSource, { format: 'safetensors' }>,
  { type, allowRequantize = false, importance }: ConvertOptions,
): Promise<GgufContent> {
  const describe = describerOf(source.file);
  const notices: string[] = [];
  const folding = foldedFactors(source.file);
  const whole = await describe(folding.file);
  const images = imageCheckpoint(source.file, whole);
  const description = images === undefined ? whole : await describe(images.text);
  const inner = textFile(source.file);
  const weights = new Map(description.weights);
  const settings = ggufSettings(inner.fields, description);
  const { architecture, tables } = settings;
  checkArchitecture(source.file.fields, architecture);
  checkOutputs(source.file, description);
  const sentence = source.hub.sentenceTransformers?.pooling;
  const tokenizer = await tokenizerToGguf(source.hub, description.config, notices);
  const pairs: GgufPairs = [
    ['general.architecture', architecture],
    ['general.name', nameOf(source.hub.name)],
    ['general.quantization_version', { type: 'uint32', value: 2 }],
    ...settings.pairs,
    ...furtherRowPairs(architecture, whole),
    ...poolingPairs(architecture, sentence?.value),
    ...rankingPairs(architecture, description),
    ...tokenizer,
  ];
  reorderWeights(weights, inner, description);
  folding.fold(weights, description);
  const planned = await plan(source.file.store.name, architecture, pairs, weights, tables, describe);
  const acts = windowInGguf.includes(description.config.architecture);
  if (!acts && description.config.slidingWindow > 0) {
    notices.push(
      `the window of ${description.config.slidingWindow} tokens is lost: GGUF readers apply none for ${architecture}`,
    );
  }
  checkSameModel(source.file.fields.source, description, planned.description, acts ? [] : ['attention.window']);
  const kept: KeptWeight[] = [];
  const choose = ({ name, shape, dtype, isFloat }: Weight): DType => {
    const own = dtype === 'f64' ? 'f32' : dtype;
    if (shape.length < 2 || isFloat === true) return 'f32';
    const { isTied, numLayers } = description.config;
    const choice = { dtype: type ?? own, isTied, numLayers, allowRequantize };
    const floatOnly = quantizedDType({ name, shape, dtype: 'f32' }, { ...choice, dtype: 'f16' }).dtype === 'f32';
    return floatOnly ? 'f32' : chosenDType({ name, shape, dtype: own }, choice, kept);
  };
  const weighted = new WeightedColumns(importance);
  const tensors = layOut(source.file.store.name, weights, planned.requests, choose, weighted.of);
  notices.push(...weighted.notices());
  const constants = [...tables].map(([name, values]) => tableTensor(name, values));
  const mmproj = await encoderOf(images, source, whole, planned.file, notices);
  notices.push(...(await lostLayers(source.hub.files, description)));
  return { pairs, tensors: [...constants, ...tensors], kept, notices, mmproj };
}

/** The key for the number of layers that add further rows of images (DeepStack). */
function furtherRowPairs(architecture: string, { config, vision }: EmbedderDescription): GgufPairs {
  const numLayers = vision === undefined ? 0 : vision.dim / config.hiddenDim - 1;
  return numLayers === 0 ? [] : [[`${architecture}.n_deepstack_layers`, u32(numLayers)]];
}

interface Planned {
  readonly file: ModelFile;
  readonly description: EmbedderDescription;
  readonly requests: ReturnType<typeof plannedStore>['requests'];
}

/** Parses the settings that will be written to determine the tensors they require. */
async function plan(
  name: string,
  architecture: string,
  pairs: GgufPairs,
  weights: ReadonlyMap<string, Weight>,
  tables: ReadonlyMap<string, Float32Array>,
  describe: ReturnType<typeof describerOf>,
): Promise<Planned> {
  const values = new Map(pairs.map(([key, value]) => [key, plainValue(value)]));
  const shown = new Map<string, Shape>([...weights].map(([own, { shape }]) => [own, shape]));
  showFused(architecture, shown);
  const store = plannedStore(
    name,
    weights,
    shown,
    [...tables].map(([own, table]) => tableTensor(own, table)),
  );
  const file: ModelFile = { format: 'gguf', fields: new Fields(name, (key) => values.get(key)), store };
  const description = await describe(file);
  return { file, description, requests: store.requests };
}

/** Architectures whose q, k and v are fused in GGUF files. */
const fusedAttention: readonly string[] = ['gpt2', 'phi3', 'nomic-bert', 'modern-bert', 'phi2'];
/** Architectures whose gate and up are fused. */
const fusedFfn: readonly string[] = ['phi3', 'glm4', 'modern-bert'];
/** Architectures with one matrix for the gate and up of all experts. */
const fusedExperts: readonly string[] = ['gemma4'];

/** A view of the store with the layout of published files. */
function showFused(architecture: string, shown: Map<string, Shape>): void {
  if (fusedAttention.includes(architecture)) showFusedAttention(shown);
  for (const name of [...shown.keys()]) {
    if (fusedFfn.includes(architecture) && name.endsWith('.ffn_gate.weight')) shown.delete(name);
    if (fusedExperts.includes(architecture) && name.endsWith('.ffn_gate_exps.weight')) {
      shown.set(name.replace('_gate_', '_gate_up_'), [1]);
    }
  }
  if (!architecture.startsWith('lfm2')) return;
  // the final norm has a different name
  shown.delete('output_norm.weight');
}

function tableTensor(name: string, values: Float32Array): StoredTensor {
  const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  return {
    name,
    dtype: 'f32',
    shape: [values.length],
    sizeBytes: bytes.length,
    read: async (target, { byteOffset = 0 } = {}) => target.set(bytes.subarray(byteOffset, byteOffset + target.length)),
  };
}

/** The last component of a path, which may be the file itself. */
function nameOf(path: string): string {
  const name = path
    .replace(/[\\/]+$/, '')
    .split(/[\\/]/)
    .at(-1);
  return (name ?? path).replace(/\.safetensors$/i, '');
}

/** The pooling type of sentence-transformers as a GGUF value. */
function poolingPairs(architecture: string, pooling: Readonly<Record<string, unknown>> | undefined): GgufPairs {
  const modes = ['pooling_mode_mean_tokens', 'pooling_mode_cls_token', 'pooling_mode_lasttoken'];
  const index = pooling === undefined ? -1 : modes.findIndex((mode) => pooling[mode] === true);
  return index === -1 ? [] : [[`${architecture}.pooling_type`, { type: 'uint32', value: index + 1 }]];
}

/** `general.file_type` for the requested type, or for the type of most bytes. */
function withFileType(pairs: GgufPairs, tensors: readonly StoredTensor[], type: QuantizeType | undefined): GgufPairs {
  const sizes = new Map<DType, number>();
  for (const { dtype, sizeBytes } of tensors) sizes.set(dtype, (sizes.get(dtype) ?? 0) + sizeBytes);
  const [most] = [...sizes].toSorted(([, a], [, b]) => b - a);
  const value = fileTypes[mainDType(type ?? most?.[0] ?? 'f32')];
  const key = 'general.file_type';
  const others = pairs.filter(([name]) => name !== key);
  if (value === undefined) return type === undefined ? pairs : others;
  const [first, ...rest] = others;
  const entry: GgufPairs[number] = [key, { type: 'uint32', value }];
  return first === undefined ? [entry] : [first, entry, ...rest];
}
