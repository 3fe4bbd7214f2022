/** Loads an open model that embeds into a backend. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { describeEmbedder, type ScaledLora } from '@winnow/models';
import type { Backend } from '@winnow/ops';
import { ReleasedError } from '@winnow/tensor';
import { adaptWeights } from './adapt-weights.js';
import { createEmbeddingModel, type EmbeddingModel } from '../embedding/model.js';
import { fitEmbedding } from '../embedding/fit.js';
import { openFeedForward, type FeedForwardRuntime } from '../weight-offload/feed-forward-runtime.js';
import { openSparse } from '../sparsity/options.js';
import { type WeightHost, checkWeightTiers } from '../weight-offload/options.js';
import { choosePooling, embeddingSettings } from '../embedding/settings.js';
import type { EmbeddingLoadOptions } from './options.js';
import { createFeedForwardTracer } from '../sparsity/feed-forward-trace.js';
import type { FeedForwardLayer } from '../sparsity/feed-forward.js';
import { loadBuffers } from '../memory/load-buffers.js';
import { createMissingTokenizer } from './missing-tokenizer.js';
import type { OpenedModel } from './opened-model.js';
import { tierNotices } from '../plan/memory-plan.js';
import { weightNames } from '../sparsity/weights-hash.js';
import { withFeedForward } from '../sparsity/with-feed-forward.js';

function withSignal({ signal }: { readonly signal?: AbortSignal }): { readonly signal?: AbortSignal } {
  return signal === undefined ? {} : { signal };
}

/** Takes over `opened`: it is closed when the model is loaded, or when loading fails. */
export async function loadOpenedEmbeddingModel(
  opened: OpenedModel,
  options: EmbeddingLoadOptions,
  adapters: readonly ScaledLora[] = [],
  weightHost: WeightHost = {},
): Promise<EmbeddingModel> {
  let ownBackend: Backend | undefined;
  const parts = { adapters, weightHost, lease: { isKept: false } };
  try {
    if (options.backend !== undefined) return await load(opened, options, options.backend, undefined, parts);
    const { numThreads, activations } = options;
    ownBackend = await createWasmBackend({
      ...(numThreads === undefined ? {} : { numThreads }),
      ...(activations === undefined ? {} : { activations }),
    });
    return await load(opened, options, ownBackend, ownBackend, parts);
  } catch (error) {
    await ownBackend?.dispose();
    throw error;
  } finally {
    if (!parts.lease.isKept) await opened.close();
  }
}

interface LoadParts {
  readonly adapters: readonly ScaledLora[];
  readonly weightHost: WeightHost;
  /** Whether the model's file stays open for as long as the model lives. */
  readonly lease: { isKept: boolean };
}

const now = (): number => (globalThis as unknown as { performance: { now(): number } }).performance.now();

async function load(
  opened: OpenedModel,
  options: EmbeddingLoadOptions,
  backend: Backend,
  ownBackend: Backend | undefined,
  { adapters, weightHost, lease }: LoadParts,
): Promise<EmbeddingModel> {
  const file = await opened.openFile();
  const described = await describeEmbedder(file);
  const { config } = described;
  const notices = await adaptWeights(described, options, file.format, adapters);
  const tracedLayers: FeedForwardLayer[] = [];
  const traced =
    options.traceFeedForward === true
      ? withFeedForward(described, () => ({
          feedForward: createFeedForwardTracer((layer) => tracedLayers.push(layer)),
        }))
      : described;
  const stored = embeddingSettings(file, opened.sentenceTransformers);
  const settings = options.isMatryoshka === true ? { ...stored, matryoshkaDimensions: 'any' as const } : stored;
  const pooling = choosePooling(config, options.pooling, settings.pooling);
  checkWeightTiers(options);
  const sparse = await openSparse(described, file, options, weightHost, backend);
  const { plan, description, tiers } = fitEmbedding(traced, pooling, settings.recommendedSize, options, sparse);
  const tokenizer =
    (await opened.openTokenizer()) ?? createMissingTokenizer(opened.name, opened.tokenizerField, config.vocabSize);
  const names = options.traceFeedForward === true ? await weightNames(file.store, withSignal(options)) : undefined;
  const buffers = await loadBuffers(backend, description, [plan.program], options);
  const freeBuffers = (): void => {
    for (const buffer of buffers.values()) backend.free(buffer);
  };
  let feedForward: FeedForwardRuntime | undefined;
  try {
    const parts = { backend, buffers, weights: description.weights, tiers, sparse, options, now };
    feedForward = await openFeedForward({ ...parts, host: weightHost });
    const closeFeedForward = feedForward.close;
    const prepared = await backend.prepare(plan.program, {
      buffers,
      onUnsupported: options.onUnsupported ?? 'fallback',
      profile: options.profile ?? false,
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    });
    const executable = feedForward.wrap(prepared);
    lease.isKept = tiers !== undefined;
    const freeMemory = async (): Promise<void> => {
      try {
        await closeFeedForward();
      } finally {
        if (tiers !== undefined) await opened.close();
      }
      try {
        freeBuffers();
      } catch (error) {
        if (!(error instanceof ReleasedError)) throw error; // the backend was disposed first, and freed everything
      }
      await ownBackend?.dispose();
    };
    const { name } = opened;
    return createEmbeddingModel({
      name,
      backend: backend.name,
      config,
      tokenizer,
      pooling,
      settings,
      plan,
      executable,
      notices: [...notices, ...(sparse?.notices ?? []), ...tierNotices(plan.memory)],
      feedForwardMetrics: feedForward.metrics,
      traced:
        names === undefined
          ? undefined
          : { ...names, layers: tracedLayers, weights: description.weights, backend, buffers },
      freeMemory,
    });
  } catch (error) {
    await feedForward?.close();
    freeBuffers();
    throw error;
  }
}
