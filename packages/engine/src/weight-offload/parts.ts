/** The parts that the FFNs of a loaded model work with, passed on unchanged. */
import type { EmbedderDescription } from '@winnow/models';
import type { Backend, BufferHandle } from '@winnow/ops';
import type { SparseWeights } from '../sparsity/sparse-weights.js';
import type { MemoryOptions, WeightHost } from './options.js';
import type { WeightTierPlan } from './plan.js';

export interface FeedForwardParts {
  readonly backend: Backend;
  readonly buffers: ReadonlyMap<string, BufferHandle>;
  readonly weights: EmbedderDescription['weights'];
  readonly tiers: WeightTierPlan | undefined;
  readonly sparse: SparseWeights | undefined;
  readonly options: { readonly memory?: number | MemoryOptions; readonly signal?: AbortSignal };
  readonly host: WeightHost;
  readonly now: () => number;
}
