/** Writes a model as a Hugging Face folder: config.json, tokenizer.json, safetensors. */
import type { StoredTensor } from '@winnow/bytes';
import {
  Fields,
  hasRankingHead,
  plannedStore,
  storedPooling,
  type EmbedderDescription,
  type ModelFile,
  type PlannedStore,
  type QuantizeType,
  type Weight,
} from '@winnow/models';
import { writeSafetensors } from '@winnow/safetensors';
import { ArgumentError, checkOptions, type DType, type Shape } from '@winnow/tensor';
import { hubArchitecture, hubSettings, textOnly, type Json } from './hub-settings.js';
import { layOut } from './layout.js';
import { describerOf, rankingSettings } from './ranking.js';
import { reorderWeights } from './reorder.js';
import { checkSameModel } from './same-model.js';
import { tokenizerToJson } from './tokenizer-to-json.js';
import {
  convertNames,
  WriteProgress,
  type ConvertOptions,
  type ConvertResult,
  type ConvertSource,
} from './conversion.js';
import { splitBySize, writeTogether, type ConvertTarget, type FileSet } from './write-files.js';

/** Weight types of Hugging Face folders. */
export const folderTypes: readonly DType[] = ['f32', 'f16', 'bf16'];

function isFolderType(type: QuantizeType): type is DType {
  return (folderTypes as readonly string[]).includes(type);
}

/** Maximum size of a weight file in bytes, as in Transformers. */
const usualSplitBytes = 5e9;

/**
 * Writes a GGUF model as a folder. Quantized weights are dequantized to `type`, by default f32.
 * @throws {FormatError} for a model that is not supported, or whose settings config.json cannot represent
 * @throws {ArgumentError} for a type that folders do not support
 * @throws {IoError} when reading or writing fails; no new files remain then
 */
export async function convertToFolder(
  source: Extract<ConvertSource, { format: 'gguf' }>,
  target: ConvertTarget,
  options: ConvertOptions = {},
): Promise<ConvertResult> {
  checkOptions(options, convertNames);
  const { type, splitSizeBytes = usualSplitBytes, signal } = options;
  if (type !== undefined && !isFolderType(type)) {
    throw new ArgumentError({ argument: 'type', expected: `${folderTypes.join(' | ')} for a folder`, actual: type });
  }
  if (options.importance !== undefined) {
    const expected = 'none for a folder, whose weights are not quantized';
    throw new ArgumentError({ argument: 'importance', expected, actual: options.importance.source });
  }
  const notices: string[] = [];
  const describe = describerOf(source.file);
  const description = withHubName(await describe(source.file), source);
  const weights = new Map(description.weights);
  const plain = textOnly[description.config.architecture];
  if (plain !== undefined) notices.push(`the language model is written as ${plain}, without images`);
  const settings = hubSettings(source.file.fields, description);
  const head = rankingSettings(source.file, description, settings);
  const config = { ...settings, ...head, ...tokenIds(source), torch_dtype: torchType(type) };
  reorderWeights(weights, source.file, description);
  const planned = await plan(source.file.store.name, config, description, weights, describe);
  checkSameModel(source.file.fields.source, description, planned.description);
  const dtypeOf = ({ shape, dtype, isFloat }: Weight): DType => {
    if (shape.length < 2 || isFloat === true) return 'f32';
    return type ?? (folderTypes.includes(dtype) ? dtype : 'f32');
  };
  const tensors = layOut(source.file.store.name, weights, planned.store.requests, dtypeOf);
  const texts = new Map<string, Json>([['config.json', config]]);
  const tokenizer = tokenizerToJson((key) => source.gguf.metadata.get(key)?.value, notices);
  if (tokenizer !== undefined) {
    texts.set('tokenizer.json', tokenizer.tokenizer);
    texts.set('tokenizer_config.json', tokenizer.config);
  }
  const [dense, own] = [tensors.filter(isDense), tensors.filter((tensor) => !isDense(tensor))];
  for (const [name, json] of sentenceFiles(source.file, dense)) texts.set(name, json);
  const progress = new WriteProgress(tensors, options);
  return writeTogether(target, async (files) => {
    let sizeBytes = await writeWeights(
      files,
      own.map((tensor) => counted(tensor, progress)),
      splitSizeBytes,
      signal,
    );
    for (const [index, tensor] of dense.entries()) {
      const file = await files.open(`${denseFolder(index)}/model.safetensors`);
      const only = { ...counted(tensor, progress), name: 'linear.weight' };
      sizeBytes += (await writeSafetensors(file, { tensors: [only], metadata: { format: 'pt' } })).sizeBytes;
    }
    for (const [name, json] of texts) {
      const sink = await files.open(name);
      await sink.write(new TextEncoder().encode(`${JSON.stringify(json, null, name === 'tokenizer.json' ? 0 : 2)}\n`));
      sizeBytes += sink.sizeBytes;
    }
    return { files: [...files.names], sizeBytes, numTensors: tensors.length, kept: [], notices };
  });
}

/** GGUF files call XLM-RoBERTa `bert`; it is recognized by its SentencePiece Unigram vocabulary, which they call `t5`. */
function withHubName<Description extends EmbedderDescription>(
  description: Description,
  { gguf }: Extract<ConvertSource, { format: 'gguf' }>,
): Description {
  const isUnigram = gguf.metadata.get('tokenizer.ggml.model')?.value === 't5';
  if (description.config.architecture !== 'bert' || !isUnigram) return description;
  return { ...description, config: { ...description.config, architecture: 'xlm-roberta' } };
}

function counted(tensor: StoredTensor, progress: WriteProgress): StoredTensor {
  return {
    ...tensor,
    async read(bytes, options) {
      await tensor.read(bytes, options);
      progress.add(bytes.length);
    },
  };
}

async function writeWeights(
  files: FileSet,
  tensors: readonly StoredTensor[],
  limit: number,
  signal: AbortSignal | undefined,
): Promise<number> {
  const parts = splitBySize(tensors, limit);
  const pad = (number: number): string => String(number).padStart(5, '0');
  const weightMap: Record<string, string> = {};
  let sizeBytes = 0;
  for (const [index, part] of parts.entries()) {
    const name =
      parts.length === 1 ? 'model.safetensors' : `model-${pad(index + 1)}-of-${pad(parts.length)}.safetensors`;
    for (const tensor of part) weightMap[tensor.name] = name;
    const options = { tensors: part, metadata: { format: 'pt' }, ...(signal === undefined ? {} : { signal }) };
    sizeBytes += (await writeSafetensors(await files.open(name), options)).sizeBytes;
  }
  if (parts.length > 1) {
    const total = tensors.reduce((sum, tensor) => sum + tensor.sizeBytes, 0);
    const sink = await files.open('model.safetensors.index.json');
    const json = { metadata: { total_size: total }, weight_map: weightMap };
    await sink.write(new TextEncoder().encode(`${JSON.stringify(json, null, 2)}\n`));
    sizeBytes += sink.sizeBytes;
  }
  return sizeBytes;
}

/** Parses the settings that will be written to determine the tensors they require. */
async function plan(
  name: string,
  config: Json,
  description: EmbedderDescription,
  weights: ReadonlyMap<string, Weight>,
  describe: ReturnType<typeof describerOf>,
): Promise<{ readonly description: EmbedderDescription; readonly store: PlannedStore }> {
  const store = plannedStore(name, weights, shownTensors(description, weights));
  const plain = JSON.parse(JSON.stringify(config)) as Json;
  const file: ModelFile = { format: 'safetensors', fields: Fields.ofJson('config.json', plain), store };
  return { description: await describe(file), store };
}

/** Tensors that architectures look for to detect the layout of a checkpoint, as in published checkpoints. */
function shownTensors({ config }: EmbedderDescription, weights: ReadonlyMap<string, Weight>): Map<string, Shape> {
  const shown = new Map<string, Shape>();
  const name = hubArchitecture(config);
  const table = weights.get('token_embd.weight')?.shape ?? [];
  const embeddings = [
    'model.embed_tokens',
    'transformer.wte',
    'embeddings.word_embeddings',
    'embeddings.tok_embeddings',
    'backbone.embeddings',
  ];
  for (const embedding of embeddings) {
    if (embedding === 'transformer.wte' && name !== 'gpt2') continue;
    shown.set(`${embedding}.weight`, table);
  }
  for (const [own, { shape }] of weights) if (own.startsWith('dense_')) shown.set(own, shape);
  const types = weights.get('token_types.weight');
  if (types !== undefined) shown.set('embeddings.token_type_embeddings.weight', types.shape);
  if (name === 'mixtral') shown.set('model.layers.0.block_sparse_moe.gate.weight', [1]);
  for (let layer = 0; layer < config.numLayers; layer++) {
    const own = `model.layers.${layer}`;
    if (name === 'phi3') shown.set(`${own}.self_attn.qkv_proj.weight`, [1]);
    if (name === 'gpt2') shown.set(`transformer.h.${layer}.attn.c_attn.weight`, [1]);
    if (name === 'nomic-bert') shown.set(`encoder.layers.${layer}.attn.Wqkv.weight`, [1]);
    if (name === 'modern-bert') shown.set(`layers.${layer}.attn.Wqkv.weight`, [1]);
    for (const expert of expertNames(name)) shown.set(`${own}.${expert}`, [1]);
  }
  return shown;
}

/** The first expert of a layer, one tensor per matrix, or the fused matrices of all experts. */
function expertNames(name: string): string[] {
  const fused = fusedExperts[name];
  if (fused !== undefined) return [fused];
  const [module, matrices] =
    name === 'mixtral'
      ? ['block_sparse_moe', ['w1', 'w2', 'w3']]
      : name === 'lfm2moe'
        ? ['feed_forward', ['w1', 'w2', 'w3']]
        : ['mlp', ['gate_proj', 'up_proj', 'down_proj']];
  return (matrices as string[]).map((matrix) => `${module as string}.experts.0.${matrix}.weight`);
}

/** Architectures whose checkpoints fuse the gate and up matrices of all experts. */
const fusedExperts: Readonly<Record<string, string>> = {
  granitemoe: 'block_sparse_moe.input_linear.weight',
  granitemoeshared: 'block_sparse_moe.input_linear.weight',
  granitehybrid: 'block_sparse_moe.input_linear.weight',
  'gpt-oss': 'mlp.experts.gate_up_proj',
  llama4: 'feed_forward.experts.gate_up_proj',
  gemma4: 'experts.gate_up_proj',
};

function torchType(type: DType | undefined): string {
  return type === 'f16' ? 'float16' : type === 'bf16' ? 'bfloat16' : 'float32';
}

function tokenIds({ gguf }: Extract<ConvertSource, { format: 'gguf' }>): Json {
  const id = (name: string): Json => {
    const value = gguf.metadata.get(`tokenizer.ggml.${name === 'pad' ? 'padding' : name}_token_id`)?.value;
    return typeof value === 'number' && value !== 0xffffffff ? { [`${name}_token_id`]: value } : {};
  };
  return { ...id('bos'), ...id('eos'), ...id('pad') };
}

/** Whether a tensor belongs to a dense layer after pooling, which is stored in a separate folder. */
function isDense({ name }: StoredTensor): boolean {
  return name.startsWith('dense_');
}

function denseFolder(index: number): string {
  return `${index + 2}_Dense`;
}

/** The settings of pooling and of the dense layers for sentence-transformers. */
function sentenceFiles(file: ModelFile, dense: readonly StoredTensor[]): [string, Json][] {
  const pooling = hasRankingHead(file) ? undefined : storedPooling(file);
  if (pooling === undefined) return [];
  const modes = {
    cls: 'cls_token',
    mean: 'mean_tokens',
    last: 'lasttoken',
    max: 'max_tokens',
    weighted: 'weightedmean_tokens',
  };
  const json = Object.fromEntries(
    Object.entries(modes).map(([kind, mode]) => [`pooling_mode_${mode}`, kind === pooling]),
  );
  const module = (idx: number, path: string, name: string): Json => ({
    idx,
    name: String(idx),
    path,
    type: `sentence_transformers.models.${name}`,
  });
  const modules = [module(0, '', 'Transformer'), module(1, '1_Pooling', 'Pooling')];
  return [
    ['1_Pooling/config.json', json],
    ...dense.map(({ shape: [numOutputs, numInputs] }, index): [string, Json] => {
      modules.push(module(index + 2, denseFolder(index), 'Dense'));
      const activation = { bias: false, activation_function: 'torch.nn.modules.linear.Identity' };
      return [`${denseFolder(index)}/config.json`, { in_features: numInputs, out_features: numOutputs, ...activation }];
    }),
    ['modules.json', modules as unknown as Json],
  ];
}
