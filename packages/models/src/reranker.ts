/** Describes rerankers: cross-encoders with a classification head, and judges, decoders that answer yes or no. */
import { ArgumentError, FormatError } from '@winnow/tensor';
import { classificationHead, judgeHead } from './blocks/ranking-head.js';
import { rowsView, stackedView } from './file/stored-views.js';
import { addWeights, collectWeights, type RequestedStore, type Weight, type WeightRequest } from './file/weights.js';
import type {
  ClassificationHead,
  EmbedderDescription,
  EncoderArchitecture,
  ModelFile,
  RerankerDescription,
} from './program/architecture.js';
import type { DecoderConfig } from './program/config.js';
import type { RankingHead, RankingProgramOptions } from './program/embedding-program.js';
import { tensorNames } from './program/tensors.js';
import { architectureOf, checkRankPooling } from './registry.js';
import { renamedStore, withOuterName } from './settings/text-part.js';

/** The answers of a judge, in the order of its labels. */
const judgeAnswers: readonly [yes: string, no: string] = ['yes', 'no'];

/** Decoders that can be judges; their prompt is that of Qwen3-Reranker. */
const judges: readonly string[] = ['qwen3'];

const output = 'cls.output';

/**
 * Reads the settings of a reranker and locates its weights, without loading them.
 * @param idOf looks up the id of a token, for the answers of a judge
 * @throws {ArgumentError} for a model that is not a reranker
 * @throws {FormatError} as `describeModel`
 */
export async function describeReranker(
  file: ModelFile,
  idOf: (token: string) => number | undefined,
): Promise<RerankerDescription> {
  const architecture = architectureOf(file);
  if (architecture.isEncoder === true && architecture.head !== undefined) {
    return describeCrossEncoder(file, architecture, architecture.head);
  }
  if (architecture.isEncoder !== true && judges.includes(architecture.name)) {
    checkRankPooling(file);
    const own = withOuterName(file);
    return describeJudge(own, await architecture.describe(withoutHead(own, [output])), idOf);
  }
  throw notReranker(architecture.name);
}

async function describeCrossEncoder(
  file: ModelFile,
  architecture: EncoderArchitecture,
  head: ClassificationHead,
): Promise<RerankerDescription> {
  const names = file.format === 'gguf' ? ['cls', 'cls.norm', output] : [head.dense, head.norm, head.output];
  const layers = names.filter((name) => name !== undefined);
  if (file.store.find === undefined) checkOutput(file, file.format === 'gguf' ? output : head.output);
  checkRankPooling(file);
  const encoder = await architecture.describe(prefixed(withoutHead(file, layers), head.hubPrefix));
  const { config, weights } = encoder;
  const store = onlyHead(file.store, layers);
  addWeights(weights, store, headRequests(file, head, config));
  return withHead(encoder, classificationHead(head.activation(file, config)), {
    pooling: head.pooling(file),
    input: 'pair',
    numLabels: 1,
    numTypes: weights.get('token_types.weight')?.shape[0] ?? 0,
  });
}

function notReranker(actual: string): ArgumentError {
  const expected = 'a reranker: bert, xlm-roberta or modern-bert with a classification head, or qwen3';
  return new ArgumentError({ argument: 'model', expected, actual });
}

/** @throws {ArgumentError | FormatError} when the model has no output layer, or not exactly one label */
function checkOutput({ fields, store }: ModelFile, name: string): void {
  const field = `${name}.weight`;
  const numLabels = store.tensors.get(field)?.shape[0];
  if (numLabels === 1) return;
  if (numLabels === undefined) throw notReranker(`a model without ${field}`);
  const message = `expected 1 label, the relevance, got ${numLabels}`;
  throw new FormatError({ source: fields.source, field, message });
}

function* headRequests(
  file: ModelFile,
  head: ClassificationHead,
  { hiddenDim }: DecoderConfig,
): Generator<WeightRequest> {
  const names = tensorNames(file);
  const { biasSetting, norm } = head;
  const bias = biasSetting === undefined || file.fields.boolean(biasSetting, false) ? 'required' : 'optional';
  yield* names.matrix(['cls', head.dense], [hiddenDim, hiddenDim], bias);
  if (norm !== undefined) yield* names.norm(['cls.norm', norm], hiddenDim, 'optional');
  yield* names.matrix([output, head.output], [1, hiddenDim], 'required');
}

/** The logits of yes and no: two rows of the output matrix, or the matrix of two rows that llama.cpp's converter writes. */
function describeJudge(
  file: ModelFile,
  decoder: EmbedderDescription,
  idOf: (token: string) => number | undefined,
): RerankerDescription {
  const { config, weights } = decoder;
  const own = file.store.tensors.has(`${output}.weight`) ? ownAnswers(file, config) : answersOf(file, decoder, idOf);
  weights.set(own.name, own);
  return withHead(decoder, judgeHead, { pooling: 'last', input: 'judge', numLabels: 2, numTypes: 0 });
}

function ownAnswers(file: ModelFile, { architecture, hiddenDim }: DecoderConfig): Weight {
  const { fields, store } = file;
  const key = `${architecture}.classifier.output_labels`;
  const labels = fields.raw(key) as readonly unknown[] | undefined;
  if (labels !== undefined && !judgeAnswers.every((answer, index) => labels[index] === answer)) {
    throw fields.refusal(key, judgeAnswers.join(', '), labels);
  }
  const requests = tensorNames(file).matrix([output, output], [judgeAnswers.length, hiddenDim], 'none');
  return collectWeights(onlyHead(store, [output]), requests).get(`${output}.weight`) as Weight;
}

function answersOf(
  { fields, store }: ModelFile,
  { config, weights }: EmbedderDescription,
  idOf: (token: string) => number | undefined,
): Weight {
  const table = weights.get(config.isTied ? 'token_embd.weight' : 'output.weight') as Weight;
  const rows = judgeAnswers.map((answer) => {
    const id = idOf(answer);
    if (id !== undefined && id < config.vocabSize) return rowsView(table.stored, id, id + 1);
    const message = `expected the token ${JSON.stringify(answer)}, which a judge answers with, got none`;
    throw new FormatError({ source: fields.source, field: 'tokenizer', message });
  });
  const stacked = stackedView(store.name, `${output}.weight`, rows);
  const shape = [rows.length, config.hiddenDim];
  const { sizeBytes } = stacked;
  return { ...table, name: `${output}.weight`, shape, sizeBytes, stored: { ...stacked, shape } };
}

function withHead(
  encoder: EmbedderDescription,
  head: RankingHead,
  facts: Pick<RerankerDescription, 'pooling' | 'input' | 'numLabels' | 'numTypes'>,
): RerankerDescription {
  return {
    config: encoder.config,
    weights: encoder.weights,
    constants: encoder.constants,
    ...facts,
    buildEmbeddingProgram(options) {
      const headed: RankingProgramOptions = { ...options, pooling: facts.pooling, head };
      return encoder.buildEmbeddingProgram(headed);
    },
  };
}

function isOf(layers: readonly string[], name: string): boolean {
  return layers.some((layer) => name === `${layer}.weight` || name === `${layer}.bias`);
}

function withoutHead(file: ModelFile, layers: readonly string[]): ModelFile {
  return { ...file, store: renamedStore(file.store, (name) => (isOf(layers, name) ? undefined : name)) };
}

function onlyHead(store: RequestedStore, layers: readonly string[]): RequestedStore {
  return renamedStore(store, (name) => (isOf(layers, name) ? name : undefined));
}

/** Gives the encoder's tensors the prefix of the model's class, for checkpoints to write. */
function prefixed(file: ModelFile, prefix: string): ModelFile {
  const { format, store } = file;
  const { find } = store;
  if (format === 'gguf' || find === undefined) return file;
  return {
    ...file,
    store: { ...store, find: (request) => find({ ...request, storedName: prefix + request.storedName }) },
  };
}
