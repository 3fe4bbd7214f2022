/** Runs a text and shows what the FFNs of a model that generates see. */
import { ArgumentError } from '@winnow/tensor';
import { readFeedForward } from '../sparsity/feed-forward-trace.js';
import type { FeedForwardLayer, FeedForwardTrace } from '../sparsity/feed-forward.js';
import type { LoadedModel } from '../runtime/loaded-model.js';
import { computeLogprobs } from './logprobs.js';

export async function traceFeedForward(
  loaded: LoadedModel,
  layers: readonly FeedForwardLayer[],
  tokens: ArrayLike<number>,
  onLayer: (trace: FeedForwardTrace) => void | Promise<void>,
  options: { readonly signal?: AbortSignal },
): Promise<void> {
  const ids = Int32Array.from(tokens);
  const { vocabSize } = loaded.config;
  for (const id of ids) {
    if (id >= 0 && id < vocabSize) continue;
    throw new ArgumentError({ argument: 'tokens', expected: `ids below ${vocabSize}`, actual: String(id) });
  }
  await computeLogprobs(loaded, ids, {
    ...options,
    onRow: () => undefined,
    onStep: (read, step) => readFeedForward(layers, read, step, onLayer),
  });
}
