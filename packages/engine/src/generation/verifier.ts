/**
 * Chooses the tokens of a step: the one after the last known token, and those after each drafted token that turns out to be
 * right. Each token is drawn from the distribution of the model as if it were alone, with the same random numbers, penalties
 * and grammar, and compared with the draft. This is rejection sampling (arXiv:2211.17192 §2.3) for drafts that are single
 * tokens: a draft x is accepted with probability p(x), and otherwise the token has the distribution p without x.
 */
import type { RngState } from '@winnow/tensor';
import type { ReadOutput } from '../memory/step-outputs.js';
import type { RowReader } from '../runtime/batch.js';
import type { Constraint } from './constraint.js';
import type { FinishReason, GeneratedToken, TokenLogprob } from './generation.js';
import type { Sampler } from './sampler.js';
import { TopReader } from './top-reader.js';

/** The text that a token completes, and whether the generation ends with it; the next token overwrites it. */
export interface AcceptedToken {
  text: string;
  isShown: boolean;
  ending: FinishReason | undefined;
}

/** A chosen token. Later steps overwrite it, but not its `token`, which callers keep. */
export interface Pick {
  token: GeneratedToken;
  isShown: boolean;
  ending: FinishReason | undefined;
  /** The state of the random numbers after it; undefined for the last one of a step. */
  rngState: RngState | undefined;
}

export interface VerifierParts {
  readonly sampler: Sampler;
  readonly constraint: Constraint | undefined;
  readonly numTopLogprobs: number;
  readonly accept: (tokenId: number) => AcceptedToken;
  /** Throws the error, or one that names the cause of logits that are not finite. */
  readonly explain: (error: unknown) => Promise<never>;
}

const noLogprobs: readonly TokenLogprob[] = [];

export class Verifier {
  /** The tokens of the last step, at least one. */
  readonly picks: Pick[] = [];
  /** The objects of `picks`, which all steps use. */
  readonly #pool: Pick[] = [];
  readonly #parts: VerifierParts;
  readonly #top: TopReader;
  #numKnown = 0;
  #draft: readonly number[] = [];
  readonly #read = (rows: RowReader): Promise<number> => this.#verify(rows);

  constructor(parts: VerifierParts) {
    this.#parts = parts;
    this.#top = new TopReader(parts.numTopLogprobs);
  }

  /**
   * Begins a step whose output rows are those of its last known token and of the drafted ones.
   * @returns the reader of the step: it returns how many tokens of the step are right
   */
  begin(numKnown: number, draft: readonly number[]): (rows: RowReader) => Promise<number> {
    this.picks.length = 0;
    this.#numKnown = numKnown;
    this.#draft = draft;
    return this.#read;
  }

  /**
   * If the device is lost during a read, the step is repeated, which continues after the tokens that were chosen before:
   * random numbers, penalties and the grammar change only after the last read of a token.
   */
  async #verify(rows: RowReader): Promise<number> {
    const { picks } = this;
    do {
      if (picks.length > 0 && !this.#continues()) break;
      await this.#choose(rows(picks.length));
    } while (this.#continues());
    return this.#numKnown + picks.length - 1;
  }

  /** Whether the last chosen token is the drafted one, so that the next row is valid. */
  #continues(): boolean {
    const last = this.picks.at(-1) as Pick;
    return last.ending === undefined && last.token.tokenId === this.#draft[this.picks.length - 1];
  }

  async #choose(read: ReadOutput): Promise<void> {
    const { sampler, constraint, numTopLogprobs, accept, explain } = this.#parts;
    const before = this.picks.at(-1);
    if (before !== undefined) before.rngState ??= sampler.state();
    const topLogprobs = numTopLogprobs > 0 ? await this.#top.read(read) : noLogprobs;
    const { tokenId, logprob } = await sampler.choose(read, constraint?.mask().bits).catch(explain);
    constraint?.accept(tokenId);
    const { text, isShown, ending } = accept(tokenId);
    const token: GeneratedToken = { tokenId, text, logprob, topLogprobs };
    const pick = (this.#pool[this.picks.length] ??= { token, isShown, ending, rngState: undefined });
    pick.token = token;
    pick.isShown = isShown;
    pick.ending = ending;
    pick.rngState = undefined;
    this.picks.push(pick);
  }
}
