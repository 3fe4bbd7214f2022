/** Loads an open model that reads whole texts into a backend: an embedding model or a reranker. */
import { describeEmbedder, describeReranker, type ModelFile, type ScaledLora } from '@winnow/models';
import type { Executable, Program } from '@winnow/ops';
import type { Tokenizer } from '@winnow/tokenizers';
import type { ImageProcessor } from '@winnow/vision';
import { fitEmbedding, type EmbedderToFit } from '../embedding/fit.js';
import { TextEmbedder, type EmbeddingModel, type TextModelParts } from '../embedding/model.js';
import { TextReranker, type Reranker } from '../embedding/reranker.js';
import { checkRerankTemplate } from '../embedding/judge-prompt.js';
import { programsOf, type EmbedderToPlan, type EmbeddingPlan } from '../embedding/plan.js';
import { checkProjection } from '../embedding/late-interaction.js';
import { choosePooling, embeddingSettings } from '../embedding/settings.js';
import { processorOf } from '../images/image-encoder.js';
import type { FittedPlan } from '../plan/fit-weights.js';
import { limitsOn, planNotices } from '../plan/memory-plan.js';
import { createFeedForwardTracer } from '../sparsity/feed-forward-trace.js';
import type { FeedForwardLayer } from '../sparsity/feed-forward.js';
import { openSparse, refuseDraftsOnly } from '../sparsity/options.js';
import { weightNames, type WeightNames } from '../sparsity/weights-hash.js';
import { budgetOf, checkWeightTiers } from '../weight-offload/options.js';
import { adaptWeights } from './adapt-weights.js';
import { createImageEncoder } from './create-image-encoder.js';
import type { EngineHost } from './engine.js';
import { createMissingTokenizer } from './missing-tokenizer.js';
import { checkSameModel, modelHash } from './model-hash.js';
import type { OpenedModel } from './opened-model.js';
import type { EmbeddingLoadOptions } from './options.js';
import type { ModelResources } from './resources.js';

/** Describes embedding models. */
export function embeddingKind(options: EmbeddingLoadOptions): DescribeKind<EmbeddingModel> {
  return async (file, opened) => {
    const description = await describeEmbedder(file);
    const lateInteraction = opened.lateInteraction();
    if (lateInteraction !== undefined) checkProjection(file, description);
    const settings = embeddingSettings(file, opened.sentenceTransformers, { ...options, lateInteraction });
    const pooling = choosePooling(description, options.pooling, settings.pooling);
    const create = (parts: TextModelParts): EmbeddingModel =>
      new TextEmbedder({ ...parts, settings, padding: description.padding });
    return { description, pooling, recommendedSize: settings.recommendedSize, create };
  };
}

/** Describes rerankers. */
export const rerankerKind: DescribeKind<Reranker> = async (file, _opened, tokenizer) => {
  const description = await describeReranker(file, (token) => tokenizer?.idOf(token));
  if (description.input === 'judge') checkRerankTemplate(file);
  const create = (parts: TextModelParts): Reranker => new TextReranker({ ...parts, description });
  return { description, pooling: description.pooling, recommendedSize: undefined, create };
};

/** A model as one of the kinds that read whole texts. */
interface TextModelKind<M> extends EmbedderToPlan {
  readonly create: (parts: TextModelParts) => M;
}

type DescribeKind<M> = (
  file: ModelFile,
  opened: OpenedModel,
  tokenizer: Tokenizer | undefined,
) => Promise<TextModelKind<M>>;

/**
 * Takes ownership of `resources`: its file is closed when the model is loaded, when loading fails, or with the model that
 * reads from it.
 */
export async function loadTextModel<M>(
  resources: ModelResources,
  options: EmbeddingLoadOptions,
  adapters: readonly ScaledLora[],
  host: EngineHost,
  kindOf: DescribeKind<M>,
): Promise<M> {
  try {
    const described = await describe(resources, options, adapters, host, kindOf);
    const limits = limitsOn(resources.backend.limits, host.memoryBytes, budgetOf(options.memory));
    const fitted = fitEmbedding(described, options, limits);
    const model = await createModel(described, fitted, resources, host);
    if (fitted.tiers === undefined && !resources.isReplaceable) await resources.closeFile();
    return model;
  } catch (error) {
    await resources.release();
    throw error;
  }
}

/** A model as its files describe it, with its weights still in them. */
interface DescribedModel<M> extends TextModelKind<M>, EmbedderToFit {
  readonly file: ModelFile;
  readonly notices: readonly string[];
  readonly tracedLayers: ReadonlyMap<number, FeedForwardLayer>;
  /** With `trace.feedForward`. */
  readonly weightNames: WeightNames | undefined;
  readonly tokenizer: Tokenizer;
  /** For models that take images. */
  readonly processor: ImageProcessor | undefined;
}

async function describe<M>(
  { opened, backend }: ModelResources,
  options: EmbeddingLoadOptions,
  adapters: readonly ScaledLora[],
  host: EngineHost,
  kindOf: DescribeKind<M>,
): Promise<DescribedModel<M>> {
  const file = await opened.openFile(true);
  const ownTokenizer = await opened.openTokenizer();
  const kind = await kindOf(file, opened, ownTokenizer);
  const { description } = kind;
  const { name, tokenizerField } = opened;
  const tokenizer = ownTokenizer ?? createMissingTokenizer(name, tokenizerField, description.config.vocabSize);
  const adapted = await adaptWeights(description, options, file.format, adapters);
  const notices = [...(backend.notices ?? []), ...adapted];
  const tracedLayers = new Map<number, FeedForwardLayer>();
  const traced = options.trace?.feedForward === true ? createFeedForwardTracer(tracedLayers) : undefined;
  checkWeightTiers(options.memory);
  const sparse = await openSparse(description, file, options, host, backend);
  refuseDraftsOnly(sparse);
  const names = options.trace?.feedForward === true ? await weightNames(file.store, options) : undefined;
  const common = { ...kind, file, sparse, traced, notices, tracedLayers };
  const { vision } = description;
  const processor = vision && processorOf(vision, opened.imageSettings, name);
  return { ...common, weightNames: names, tokenizer, processor };
}

const now = (): number => (globalThis as unknown as { performance: { now(): number } }).performance.now();

async function createModel<M>(
  described: DescribedModel<M>,
  { plan, tiers }: FittedPlan<EmbeddingPlan>,
  resources: ModelResources,
  host: EngineHost,
): Promise<M> {
  const { file, description, create, sparse, notices, tracedLayers, tokenizer } = described;
  const { config, weights } = description;
  const { opened, backend } = resources;
  const programs = programsOf(plan);
  const buffers = await resources.upload(description, programs);
  // before programs are prepared, which may repack weights
  const hashOf = (): Promise<string> => modelHash(opened.metadata, file.store, backend, buffers, weights, tiers);
  const hash = resources.isReplaceable ? await hashOf() : '';
  await resources.prepare(programs, { weights, tiers, sparse, host, now }, false);
  const executableOf = (program: Program): Executable => resources.executables.get(program) as Executable;
  const checkWeights = (): Promise<void> => checkSameModel(file.store.name, hash, hashOf);
  const deviceRecovery = resources.deviceRecovery(description, checkWeights, () => undefined);
  return create({
    name: opened.name,
    backend: backend.name,
    config,
    tokenizer,
    plan,
    executable: executableOf(plan.program),
    deviceRecovery,
    images: createImageEncoder(described, plan.visionProgram, resources, deviceRecovery, host),
    nonFinite: resources.nonFiniteSearch(description),
    notices: [...notices, ...(sparse?.notices ?? []), ...planNotices(plan.memory)],
    feedForwardMetrics: () => resources.feedForward?.metrics(),
    traced: described.weightNames && {
      ...described.weightNames,
      layers: [...tracedLayers.values()],
      weights,
      backend,
      buffers,
    },
    release: () => resources.release(),
  });
}
