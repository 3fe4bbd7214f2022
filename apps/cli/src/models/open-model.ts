/** Opens a model from MODEL and flags, with progress. */
import type { LoadOptions, LoadProgress, Model, ModelInfo, ModelLocation, ModelTokenizer } from '@winnow/engine';
import { ArgumentError, IoError, WinnowError } from '@winnow/tensor';
import { draftModelOf, loadOptionsOf } from '../flags/engine-options.js';
import { InterruptedError, withFlags } from '../errors/errors.js';
import type { CliIo } from '../terminal/io.js';
import { blobModel } from './blob-model.js';
import { checkModelPath, parseModelReference } from './model-location.js';
import { withPolicyPath } from './policy-files.js';
import type { LoadFlags } from '../flags/load.js';
import type { Progress } from '../terminal/progress.js';
import { suggest } from '../errors/suggestion.js';

export interface OpenContext {
  readonly io: CliIo;
  readonly progress: Progress;
  readonly signal: AbortSignal;
  /** Prints a line to stderr, unless --quiet was given. */
  readonly warn: (text: string) => void;
}

/** The location of the model, downloaded if necessary, also its image encoder if that is wanted. */
export async function locateModel(
  model: string | undefined,
  { io, progress, signal }: OpenContext,
  { mmproj = false }: { readonly mmproj?: boolean } = {},
): Promise<ModelLocation> {
  const reference = parseModelReference(model);
  if (reference.kind === 'location') {
    const { location } = reference;
    if (typeof location === 'string') checkModelPath(location);
    return location instanceof URL && location.protocol === 's3:' ? blobModel(location.href, signal) : location;
  }
  try {
    return await io.download(reference.request, {
      ...{ signal, mmproj },
      onProgress: ({ file, loadedBytes, totalBytes }) =>
        progress.show(`download ${file}`, loadedBytes, totalBytes, 'bytes'),
    });
  } catch (cause) {
    if (signal.aborted) throw new InterruptedError('interrupted; the same command resumes the download');
    if (!reference.isAmbiguous || !WinnowError.isInstance(cause) || cause.code !== 'io') throw cause;
    const message = `no such file or folder, and not a hub repository: ${cause.message}`;
    throw new IoError({ source: reference.request.repo, message }, { cause });
  } finally {
    progress.clear();
  }
}

/** A bar while weights load; later phases, such as repacking, have no known amount. */
export function loadProgress(progress: Progress): (loaded: LoadProgress) => void {
  return ({ loadedBytes, totalBytes }) => {
    if (loadedBytes < totalBytes) progress.show('load', loadedBytes, totalBytes, 'bytes');
    else progress.wait('prepare');
  };
}

/** Opens a model and the one that drafts for it, which ends with it. */
export async function openDraftedModel(
  model: string | undefined,
  flags: LoadFlags,
  context: OpenContext,
  more: Pick<LoadOptions, 'promptCache'> = {},
): Promise<Model> {
  const options = { ...loadOptionsOf(flags), ...more };
  const drafting = draftModelOf(flags);
  if (drafting === undefined) return openModel(model, options, context);
  const {
    speculative: _speculative,
    attention: _attention,
    kvCache: _kvCache,
    promptCache: _cache,
    ...common
  } = options;
  const draftModel = await openModel(drafting, common, context);
  try {
    const opened = await openModel(model, { ...options, draftModel }, context);
    const dispose = async (): Promise<void> => {
      await opened.dispose();
      await draftModel.dispose();
    };
    return { ...opened, dispose, [Symbol.asyncDispose]: dispose };
  } catch (error) {
    await draftModel.dispose();
    throw error;
  }
}

export async function openModel(model: string | undefined, options: LoadOptions, context: OpenContext): Promise<Model> {
  const { io, progress, signal, warn } = context;
  const location = await locateModel(model, context, { mmproj: options.mmproj === undefined });
  const engine = await io.engine();
  try {
    const loaded = await engine.loadModel(location, {
      ...withPolicyPath(model, options),
      onEvent: (event) => {
        if (event.kind === 'notice') warn(withFlags(event.text));
      },
      randomSeed: io.randomSeed,
      signal,
      onProgress: loadProgress(progress),
    } satisfies LoadOptions);
    const { backend, threads = 1 } = options;
    if (backend !== undefined && threads > 1) {
      warn(`--threads ${threads} has no effect: the ${backend.name} backend computes with one thread`);
    }
    warnOf(loaded, warn);
    return loaded;
  } catch (error) {
    throw isEncoderError(error)
      ? suggest(error, ['embed', ...(model === undefined ? [] : [model]), '-p', 'TEXT'])
      : error;
  } finally {
    progress.clear();
  }
}

/** Prints notices of the model and ops without a kernel. */
export function warnOf({ notices, fallbacks }: Pick<Model, 'notices' | 'fallbacks'>, warn: OpenContext['warn']): void {
  for (const notice of notices) warn(withFlags(notice));
  for (const { op, reason, numRecords } of fallbacks) {
    warn(`${numRecords} × ${op} fell back to the reference: ${reason}`);
  }
}

/** Whether a model cannot be loaded because it only embeds. */
export function isEncoderError(error: unknown): error is ArgumentError {
  return ArgumentError.isInstance(error) && error.argument === 'model' && /an encoder/.test(error.actual);
}

export async function openTokenizer(model: string | undefined, context: OpenContext): Promise<ModelTokenizer> {
  const location = await locateModel(model, context);
  return (await context.io.engine()).openTokenizer(location, { signal: context.signal });
}

export async function inspectModel(
  model: string | undefined,
  flags: LoadFlags,
  context: OpenContext,
): Promise<ModelInfo> {
  const location = await locateModel(model, context, { mmproj: flags.mmproj === undefined });
  const options = withPolicyPath(model, loadOptionsOf(flags));
  return (await context.io.engine()).inspectModel(location, { ...options, signal: context.signal });
}
