/**
 * BERT (arXiv:1810.04805): `x = LN(token + type 0 + position)`, then post-norm blocks `x = LN(x + attn(x)); x = LN(x +
 * down(gelu(up(x))))` with biases everywhere and bidirectional attention. A text is a single segment of type 0.
 */
import { plainFeedForward } from '../blocks/decoder-blocks.js';
import { describeEncoder, embedWithNorm, postNormLayer } from '../blocks/encoder-blocks.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { EmbedderDescription, EncoderArchitecture, ModelFile } from '../program/architecture.js';
import { tensorNames } from '../program/tensors.js';
import { refuseSettings } from '../settings/config-checks.js';
import {
  biasedNorm,
  encoderAttention,
  encoderFromGguf,
  encoderFromHub,
  encoderPart,
  rowsOf,
  tokenTensors,
  type EncoderConfig,
} from '../settings/encoder-settings.js';

export const bert: EncoderArchitecture = {
  name: 'bert',
  models:
    'all-MiniLM, BGE (en, zh), GTE, E5, mxbai, Arctic Embed (xs to m); ColBERT v2, answerai-colbert-small (multi-vectors); ' +
    'rerankers: MS MARCO MiniLM',
  limits: [
    'The context cannot exceed the learned positions.',
    'GGUF files do not specify the GELU variant: the tanh approximation is used, as in llama.cpp, unless `bert.hidden_act` is present.',
    'A text to embed is a single segment. Of a pair to rank, the document is segment 1, also from GGUF files (llama.cpp: 0).',
    'ColBERT models are folders of the class `HF_ColBERT`, of PyLate or of sentence-transformers, with one layer per token.',
    'The GGUF file of a reranker must contain its pooler as `cls`, which the converter of llama.cpp leaves out.',
  ],
  isEncoder: true,
  ggufNames: ['bert'],
  hubNames: ['bert'],
  hubClass: 'BertModel',
  head: {
    hubClass: 'BertForSequenceClassification',
    hubPrefix: 'bert.',
    dense: 'bert.pooler.dense',
    output: 'classifier',
    pooling: () => 'cls',
    activation: () => 'tanh',
  },
  async describe(checkpoint) {
    const file = encoderPart(checkpoint, {
      outer: ['bert.', 'model.'],
      heads: /^(pooler|cls)\.|^embeddings\.position_ids$/,
    });
    return describeBert(file, file.format === 'gguf' ? ofGguf(file) : bertFromHub(file, 'bert'));
  },
};

/** Names of the attention of a layer in Hugging Face checkpoints, within the layer. */
export interface BertAttentionNames {
  readonly qkv: readonly [q: string, k: string, v: string];
  readonly output: string;
  readonly norm: string;
}

const bertNames: BertAttentionNames = {
  qkv: ['attention.self.query', 'attention.self.key', 'attention.self.value'],
  output: 'attention.output.dense',
  norm: 'attention.output.LayerNorm',
};

/** How variants of BERT differ from it. */
interface BertVariant {
  /** Row of the position table for the first token; earlier rows are unused. Default: 0. */
  readonly firstPosition?: number;
  readonly names?: BertAttentionNames;
  readonly tensors?: Iterable<WeightRequest>;
  readonly attention?: Parameters<typeof postNormLayer>[0];
}

export function describeBert(file: ModelFile, config: EncoderConfig, variant: BertVariant = {}): EmbedderDescription {
  const { tensors = [], attention = {} } = variant;
  const all = [...requests(file, config, variant), ...tokenTensors(file, config), ...tensors];
  return describeEncoder({
    config: { ...config, maxPositions: config.contextLength },
    weights: collectWeights(file.store, all),
    embed: embedWithNorm,
    layer: postNormLayer(attention, plainFeedForward),
  });
}

/**
 * The context length of a model whose position table starts with padding rows, and the row of its first token.
 * @throws {FormatError} when the table has only padding rows
 */
export function paddedPositions(
  file: ModelFile,
  { contextLength: numRows }: EncoderConfig,
): {
  readonly contextLength: number;
  readonly firstPosition: number;
} {
  const firstPosition = file.fields.integer('pad_token_id', 1) + 1;
  const contextLength = numRows - firstPosition;
  if (firstPosition >= 1 && contextLength >= 1) return { contextLength, firstPosition };
  throw file.fields.refusal('max_position_embeddings', `more than ${firstPosition}, the padding rows`, numRows);
}

function ofGguf(file: ModelFile): EncoderConfig {
  return encoderFromGguf(file, 'bert', { activation: 'gelu_pytorch_tanh' });
}

/** The settings of BERT and its relatives in config.json. */
export function bertFromHub(file: ModelFile, architecture: string): EncoderConfig {
  refuseSettings(file.fields, { position_embedding_type: ['absolute'] });
  return encoderFromHub(file, {
    architecture,
    epsilon: ['layer_norm_eps', 1e-12],
    activation: ['hidden_act', 'gelu'],
    contextLength: 512,
    numHeads: 12,
    embedding: 'embeddings.word_embeddings.weight',
    ffnDim: (hiddenDim) => 4 * hiddenDim,
  });
}

function* requests(
  file: ModelFile,
  config: EncoderConfig,
  { firstPosition = 0, names: hubNames = bertNames }: BertVariant,
): Generator<WeightRequest> {
  const { vocabSize, hiddenDim, ffnDim, numLayers, contextLength } = config;
  const names = tensorNames(file);
  const hubTypes = 'embeddings.token_type_embeddings';
  const numTypes = rowsOf(file.store, `${names.isHub ? hubTypes : 'token_types'}.weight`);
  yield* names.matrix(['token_embd', 'embeddings.word_embeddings'], [vocabSize, hiddenDim], 'none');
  const positions = names.matrix(
    ['position_embd', 'embeddings.position_embeddings'],
    [contextLength, hiddenDim],
    'none',
  );
  const rows = { begin: firstPosition, total: firstPosition + contextLength };
  yield* firstPosition === 0 ? positions : positions.map((request) => ({ ...request, rows }));
  if (numTypes > 0) yield* names.matrix(['token_types', hubTypes], [numTypes, hiddenDim], 'none');
  yield* biasedNorm(names, ['token_embd_norm', 'embeddings.LayerNorm'], config);
  for (let layer = 0; layer < numLayers; layer++) {
    const [own, hub] = [`blk.${layer}`, `encoder.layer.${layer}`];
    const [q, k, v] = hubNames.qkv;
    const attention = {
      qkv: [`${hub}.${q}`, `${hub}.${k}`, `${hub}.${v}`],
      output: `${hub}.${hubNames.output}`,
    } as const;
    yield* encoderAttention(names, config, own, attention, 'required');
    yield* biasedNorm(names, [`${own}.attn_output_norm`, `${hub}.${hubNames.norm}`], config);
    yield* names.matrix([`${own}.ffn_up`, `${hub}.intermediate.dense`], [ffnDim, hiddenDim], 'required');
    yield* names.matrix([`${own}.ffn_down`, `${hub}.output.dense`], [hiddenDim, ffnDim], 'required');
    yield* biasedNorm(names, [`${own}.layer_output_norm`, `${hub}.output.LayerNorm`], config);
  }
}
