/** Opens one model several times, and reads text, for evaluation commands. */
import type { LoadOptions, Model, ModelLocation } from '@winnow/engine';
import { defaultText, type OpenModel } from '@winnow/evaluation';
import { createReferenceBackend } from '@winnow/ops';
import { UsageError } from '../errors/errors.js';
import { loadOptionsOf } from '../flags/engine-options.js';
import { locateModel, type OpenContext } from './open-model.js';
import type { LoadFlags } from '../flags/load.js';

/** Reports once per op what falls back to the reference. */
export async function createModelOpener(
  model: string | undefined,
  flags: LoadFlags,
  context: OpenContext,
): Promise<{ readonly location: ModelLocation; readonly open: OpenModel }> {
  const location = await locateModel(model, context);
  const engine = await context.io.engine();
  const reported = new Set<string>();
  const open: OpenModel = async ({ backend, kvCache, context: numTokens, ...options }) => {
    const loaded = await engine.loadModel(location, {
      ...loadOptionsOf(flags, kvCache),
      ...options,
      context: Math.max(numTokens, flags.context ?? 0),
      signal: context.signal,
      randomSeed: context.io.randomSeed,
      ...(backend === undefined ? {} : { backend: createReferenceBackend() }),
    } satisfies LoadOptions);
    for (const { op, reason } of loaded.fallbacks) {
      if (reported.has(op)) continue;
      reported.add(op);
      context.warn(`${op} falls back to the reference, which is slow: ${reason}`);
    }
    return loaded;
  };
  return { location, open };
}

/** The first `numTokens` tokens of a text, of the built-in one without it. @throws {UsageError} when it is too short */
export function tokensOf(
  model: Pick<Model, 'encodePrompt' | 'tokenizer'>,
  text: string | undefined,
  numTokens: number,
): Int32Array {
  const count = (part: string): number => model.tokenizer.encode(part, { addSpecialTokens: false }).length;
  const tokens = model.encodePrompt(text ?? defaultText(numTokens, count));
  if (Math.min(tokens.length, numTokens) < 2) throw new UsageError('text: expected at least 2 tokens, got fewer');
  return tokens.slice(0, numTokens);
}
