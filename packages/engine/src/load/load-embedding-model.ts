/** Loads an open embedding model into a backend. */
import {
  describeEmbedder,
  type DecoderConfig,
  type EmbedderDescription,
  type ModelFile,
  type ScaledLora,
} from '@winnow/models';
import type { Backend } from '@winnow/ops';
import type { Tokenizer } from '@winnow/tokenizers';
import { fitEmbedding } from '../embedding/fit.js';
import { TextEmbedder, type EmbeddingModel } from '../embedding/model.js';
import type { EmbeddingPlan } from '../embedding/plan.js';
import { choosePooling, embeddingSettings, type EmbeddingSettings } from '../embedding/settings.js';
import type { FittedPlan } from '../plan/fit-weights.js';
import { limitsOn, planNotices } from '../plan/memory-plan.js';
import { withFeedForwardTrace } from '../sparsity/feed-forward-trace.js';
import type { FeedForwardLayer } from '../sparsity/feed-forward.js';
import { openSparse } from '../sparsity/options.js';
import type { SparseWeights } from '../sparsity/sparse-weights.js';
import { weightNames, type WeightNames } from '../sparsity/weights-hash.js';
import { openFeedForward } from '../weight-offload/feed-forward-runtime.js';
import { checkWeightTiers } from '../weight-offload/options.js';
import { adaptWeights } from './adapt-weights.js';
import type { EngineHost } from './engine.js';
import { createMissingTokenizer } from './missing-tokenizer.js';
import { checkSameModel, modelHash } from './model-hash.js';
import type { OpenedModel } from './opened-model.js';
import type { EmbeddingLoadOptions } from './options.js';
import { ModelResources } from './resources.js';

/**
 * Takes ownership of `opened`: it is closed when the model is loaded, when loading fails, or with the model that reads
 * from it.
 */
export async function loadOpenedEmbeddingModel(
  opened: OpenedModel,
  options: EmbeddingLoadOptions,
  adapters: readonly ScaledLora[],
  host: EngineHost,
): Promise<EmbeddingModel> {
  const resources = await ModelResources.open(opened, options);
  try {
    const described = await describe(opened, options, adapters, host, resources.backend);
    const model = await createModel(described, resources, options, host);
    if (described.fitted.tiers === undefined && !resources.isReplaceable) await resources.closeFile();
    return model;
  } catch (error) {
    await resources.release();
    throw error;
  }
}

/** A model that is planned, with its weights still in the file. */
interface DescribedEmbedder {
  readonly file: ModelFile;
  readonly metadata: OpenedModel['metadata'];
  readonly name: string;
  readonly config: DecoderConfig;
  readonly settings: EmbeddingSettings;
  readonly sparse: SparseWeights | undefined;
  readonly fitted: FittedPlan<EmbedderDescription, EmbeddingPlan>;
  readonly notices: readonly string[];
  readonly tracedLayers: ReadonlyMap<number, FeedForwardLayer>;
  /** With `trace.feedForward`. */
  readonly weightNames: WeightNames | undefined;
  readonly tokenizer: Tokenizer;
}

async function describe(
  opened: OpenedModel,
  options: EmbeddingLoadOptions,
  adapters: readonly ScaledLora[],
  host: EngineHost,
  backend: Backend,
): Promise<DescribedEmbedder> {
  const file = await opened.openFile();
  const description = await describeEmbedder(file);
  const { config } = description;
  const adapted = await adaptWeights(description, options, file.format, adapters);
  const notices = [...(backend.notices ?? []), ...adapted];
  const tracedLayers = new Map<number, FeedForwardLayer>();
  const traced = options.trace?.feedForward === true ? withFeedForwardTrace(description, tracedLayers) : description;
  const settings = embeddingSettings(file, opened.sentenceTransformers, options);
  const pooling = choosePooling(config, options.pooling, settings.pooling);
  checkWeightTiers(options.memory);
  const sparse = await openSparse(description, file, options, host, backend);
  const limits = limitsOn(backend.limits, host.memoryBytes);
  const fitted = fitEmbedding(traced, pooling, settings.recommendedSize, options, sparse, limits);
  const tokenizer =
    (await opened.openTokenizer()) ?? createMissingTokenizer(opened.name, opened.tokenizerField, config.vocabSize);
  const names = options.trace?.feedForward === true ? await weightNames(file.store, options) : undefined;
  const { name, metadata } = opened;
  const common = { file, metadata, name, config, settings, sparse, fitted, notices, tracedLayers };
  return { ...common, weightNames: names, tokenizer };
}

const now = (): number => (globalThis as unknown as { performance: { now(): number } }).performance.now();

async function createModel(
  described: DescribedEmbedder,
  resources: ModelResources,
  options: EmbeddingLoadOptions,
  host: EngineHost,
): Promise<EmbeddingModel> {
  const { file, metadata, name, config, settings, sparse, fitted, notices, tracedLayers, tokenizer } = described;
  const { plan, description, tiers } = fitted;
  const { weights } = description;
  const { backend } = resources;
  const buffers = await resources.upload(description, [plan.program], options);
  // before programs are prepared, which may repack weights
  const hashOf = (): Promise<string> => modelHash(metadata, file.store, backend, buffers, weights, tiers);
  const hash = resources.isReplaceable ? await hashOf() : '';
  const feedForward = await openFeedForward({ backend, buffers, weights, tiers, sparse, options, host, now });
  await resources.prepare([plan.program], feedForward, options);
  const [executable] = resources.executables.values();
  const checkWeights = (): Promise<void> => checkSameModel(file.store.name, hash, hashOf);
  return new TextEmbedder({
    name,
    backend: backend.name,
    config,
    tokenizer,
    settings,
    plan,
    executable: executable as NonNullable<typeof executable>,
    deviceRecovery: resources.deviceRecovery(description, checkWeights, () => undefined),
    nonFinite: resources.nonFiniteSearch(description),
    notices: [...notices, ...(sparse?.notices ?? []), ...planNotices(plan.memory)],
    feedForwardMetrics: () => feedForward.metrics(),
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
