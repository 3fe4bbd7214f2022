/** What runs FFNs that skip neurons or have their weights in tiers, or nothing for models that do neither. */
import type { EmbedderDescription } from '@winnow/models';
import type { Backend, BufferHandle, Executable } from '@winnow/ops';
import { createBusyTime } from '../metrics/busy-time.js';
import type { FeedForwardMetrics } from '../metrics/feed-forward.js';
import { openCold, type ColdFiles } from '../memory/cold-files.js';
import { openWeightTiers } from './open.js';
import type { MemoryOptions, WeightHost } from './options.js';
import type { SparseWeights } from '../sparsity/sparse-weights.js';
import { WeightOffloader } from './offloader.js';
import type { WeightTierPlan } from './plan.js';

export interface FeedForwardRuntime {
  wrap(executable: Executable): Executable;
  /** `undefined` when all FFNs are ordinary. */
  metrics(): FeedForwardMetrics | undefined;
  /** Brings weights in tiers into the slots of a new device. */
  refill(): Promise<void>;
  close(): Promise<void>;
}

export interface OpenFeedForwardOptions {
  readonly backend: Backend;
  readonly buffers: ReadonlyMap<string, BufferHandle>;
  readonly weights: EmbedderDescription['weights'];
  readonly tiers: WeightTierPlan | undefined;
  readonly sparse: SparseWeights | undefined;
  readonly options: { readonly memory?: number | MemoryOptions; readonly signal?: AbortSignal };
  readonly host: WeightHost;
  readonly now: () => number;
}

export async function openFeedForward(parts: OpenFeedForwardOptions): Promise<FeedForwardRuntime> {
  const { backend, buffers, weights, tiers, sparse, options, host, now } = parts;
  if (tiers === undefined && sparse === undefined) {
    return {
      wrap: (executable) => executable,
      metrics: () => undefined,
      refill: async () => undefined,
      close: async () => undefined,
    };
  }
  const reads = createBusyTime(now);
  const opened =
    tiers &&
    (await openWeightTiers({
      backend,
      buffers,
      weights,
      plan: tiers,
      files: filesOf(options.memory, host),
      reads,
      signal: options.signal,
    }));
  const runtime = new WeightOffloader({
    backend,
    buffers,
    tiers,
    cache: opened && (() => opened.cache),
    reads,
    ffnDims: sparse?.ffnDims ?? new Map(),
    now,
  });
  return {
    wrap: (executable) => runtime.wrap(executable),
    metrics: () => runtime.metrics(),
    refill: async () => opened?.refill(),
    close: async () => opened?.close(),
  };
}

function filesOf(memory: number | MemoryOptions | undefined, host: WeightHost): ColdFiles | undefined {
  const folder = typeof memory === 'object' ? memory.folder : undefined;
  if (folder === undefined) return host.temporaryFiles?.();
  return openCold(folder, host.openFolder);
}
