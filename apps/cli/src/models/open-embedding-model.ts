/** Opens the model of a command that embeds or ranks texts. */
import { ArgumentError } from '@winnow/tensor';
import type { EmbeddingLoadOptions, EmbeddingModel, Reranker, RerankerLoadOptions } from '@winnow/engine';
import { suggest, type Suggestion } from '../errors/suggestion.js';
import { loadProgress, locateModel, warnOf, type OpenContext } from './open-model.js';

export async function openEmbeddingModel(
  model: string | undefined,
  options: EmbeddingLoadOptions,
  context: OpenContext,
): Promise<EmbeddingModel> {
  const { io, progress, signal, warn } = context;
  const location = await locateModel(model, context);
  const engine = await io.engine();
  try {
    const loaded = await engine.loadEmbeddingModel(location, {
      ...options,
      signal,
      onProgress: loadProgress(progress),
    });
    warnOf(loaded, warn);
    return loaded;
  } catch (error) {
    throw isPoolingError(error) ? suggest(error, poolingSuggestion(model)) : error;
  } finally {
    progress.clear();
  }
}

export async function openReranker(
  model: string,
  options: RerankerLoadOptions,
  context: OpenContext,
): Promise<Reranker> {
  const { io, progress, signal, warn } = context;
  const location = await locateModel(model, context);
  const engine = await io.engine();
  try {
    const loaded = await engine.loadReranker(location, { ...options, signal, onProgress: loadProgress(progress) });
    warnOf(loaded, warn);
    return loaded;
  } finally {
    progress.clear();
  }
}

/** Whether a model declares no pooling. */
function isPoolingError(error: unknown): error is ArgumentError {
  return ArgumentError.isInstance(error) && error.argument === 'pooling' && error.actual === 'nothing';
}

function poolingSuggestion(model: string | undefined): Suggestion {
  const flags = ['--pooling', 'last'];
  return model === undefined ? { after: flags } : { argument: model, instead: [model, ...flags] };
}
