/** The option `draftModel`: a smaller model that drafts. */
import type { Tokenizer } from '@winnow/tokenizers';
import { ArgumentError } from '@winnow/tensor';
import { checkSpeculative, type Speculative } from '../plan/speculative.js';
import type { GenerateOptions, Generation } from './generation.js';

/** A session of the model that drafts. */
export interface DraftSession {
  generate(prompt: readonly number[], options: GenerateOptions): Generation;
  dispose(): void;
}

/** A loaded model that drafts; `Model` is one. */
export interface DraftModel {
  readonly tokenizer: Tokenizer;
  readonly contextSize: number;
  createSession(): DraftSession;
}

export interface DraftModelOptions {
  /**
   * A smaller model with the same vocabulary for `speculative: 'draft'`, which is its default then. Each generation that drafts opens a
   * session of it. The caller disposes of it after this model.
   */
  readonly draftModel?: DraftModel;
}

interface ResolvedDraftOptions extends DraftModelOptions {
  readonly speculative: Speculative;
}

/**
 * The option, `draft` by default if there is a model for it.
 * @throws {ArgumentError} for another value, and for `self` without a policy
 */
export function speculativeOf(options: DraftModelOptions & { readonly speculative?: Speculative }): Speculative {
  const { draftModel } = options;
  const kind = checkSpeculative(options.speculative ?? (draftModel === undefined ? 'off' : 'draft'));
  if (kind === 'self') throw new ArgumentError({ argument: 'speculative', expected: 'self=POLICY', actual: kind });
  return kind;
}

/** @throws {ArgumentError} for `draft` without a model */
export function checkHasDraftModel({ speculative, draftModel }: ResolvedDraftOptions): void {
  if (speculative !== 'draft' || draftModel !== undefined) return;
  const expected = "a model, with speculative: 'draft'";
  throw new ArgumentError({ argument: 'draftModel', expected, actual: 'undefined' });
}

/** @throws {ArgumentError} for a model with another vocabulary */
export function checkDraftModel(model: DraftModel | undefined, tokenizer: Tokenizer): void {
  if (model === undefined) return;
  const { vocabSize } = tokenizer;
  let actual = model.tokenizer.vocabSize === vocabSize ? undefined : `${model.tokenizer.vocabSize} tokens`;
  for (let id = 0; id < vocabSize && actual === undefined; id++) {
    if (model.tokenizer.tokenText(id) !== tokenizer.tokenText(id)) actual = `another token ${id}`;
  }
  if (actual === undefined) return;
  throw new ArgumentError({ argument: 'draftModel', expected: `a model with the same ${vocabSize} tokens`, actual });
}
