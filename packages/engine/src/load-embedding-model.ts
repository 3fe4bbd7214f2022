/** Loads an open model that embeds into a backend. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { describeEmbedder, type ScaledLora } from '@winnow/models';
import type { Backend } from '@winnow/ops';
import { ReleasedError } from '@winnow/tensor';
import { adaptWeights } from './adapt-weights.js';
import { createEmbeddingModel } from './embed-model.js';
import { planEmbedding } from './embed-plan.js';
import { choosePooling, embeddingSettings } from './embed-settings.js';
import type { EmbeddingLoadOptions, EmbeddingModel } from './embed-types.js';
import { createFeedForwardTracer } from './feed-forward-trace.js';
import type { FeedForwardLayer } from './feed-forward-types.js';
import { loadBuffers } from './load-buffers.js';
import { checkMemory } from './memory-plan.js';
import { createMissingTokenizer } from './missing-tokenizer.js';
import type { OpenedModel } from './opened-model.js';
import { weightsHash } from './weights-hash.js';
import { withFeedForward } from './with-feed-forward.js';

function withSignal({ signal }: { readonly signal?: AbortSignal }): { readonly signal?: AbortSignal } {
  return signal === undefined ? {} : { signal };
}

/** Takes over `opened`: it is closed when the model is loaded, or when loading fails. */
export async function loadOpenedEmbeddingModel(
  opened: OpenedModel,
  options: EmbeddingLoadOptions,
  adapters: readonly ScaledLora[] = [],
): Promise<EmbeddingModel> {
  let ownBackend: Backend | undefined;
  try {
    if (options.backend !== undefined) return await load(opened, options, options.backend, undefined, adapters);
    const { numThreads, activations } = options;
    ownBackend = await createWasmBackend({
      ...(numThreads === undefined ? {} : { numThreads }),
      ...(activations === undefined ? {} : { activations }),
    });
    return await load(opened, options, ownBackend, ownBackend, adapters);
  } catch (error) {
    await ownBackend?.dispose();
    throw error;
  } finally {
    await opened.close();
  }
}

async function load(
  opened: OpenedModel,
  options: EmbeddingLoadOptions,
  backend: Backend,
  ownBackend: Backend | undefined,
  adapters: readonly ScaledLora[],
): Promise<EmbeddingModel> {
  const file = await opened.openFile();
  const described = await describeEmbedder(file);
  const { config } = described;
  const notices = await adaptWeights(described, options, file.format, adapters);
  const tracedLayers: FeedForwardLayer[] = [];
  const description =
    options.traceFeedForward === true
      ? withFeedForward(described, () => ({ feedForward: createFeedForwardTracer((layer) => tracedLayers.push(layer)) }))
      : described;
  const stored = embeddingSettings(file, opened.sentenceTransformers);
  const settings = options.isMatryoshka === true ? { ...stored, matryoshkaDimensions: 'any' as const } : stored;
  const pooling = choosePooling(config, options.pooling, settings.pooling);
  const plan = planEmbedding(description, pooling, settings.recommendedSize, options);
  checkMemory(plan.memory, options.memoryLimitBytes);
  const tokenizer =
    (await opened.openTokenizer()) ?? createMissingTokenizer(opened.name, opened.tokenizerField, config.vocabSize);
  const hash = options.traceFeedForward === true ? await weightsHash(file.store, withSignal(options)) : undefined;
  const buffers = await loadBuffers(backend, description, [plan.program], options);
  const freeBuffers = (): void => {
    for (const buffer of buffers.values()) backend.free(buffer);
  };
  try {
    const executable = await backend.prepare(plan.program, {
      buffers,
      onUnsupported: options.onUnsupported ?? 'fallback',
      profile: options.profile ?? false,
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    });
    const freeMemory = async (): Promise<void> => {
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
      notices,
      traced:
        hash === undefined
          ? undefined
          : { weightsHash: hash, layers: tracedLayers, weights: description.weights, backend, buffers },
      freeMemory,
    });
  } catch (error) {
    freeBuffers();
    throw error;
  }
}
