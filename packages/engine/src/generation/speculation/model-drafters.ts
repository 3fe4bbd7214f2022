/** Drafts by models: the same one under a sparse policy, or a smaller one. */
import { CapacityError } from '@winnow/tensor';
import type { Scheduler } from '../../runtime/scheduler.js';
import type { Sequence } from '../../runtime/sequence.js';
import type { DraftModel, DraftSession } from '../draft-model.js';
import type { ModelDrafter } from './drafter.js';

/** The same weights under a sparse policy, over the target's cache; its tokens are taken back after every draft. */
export class SelfDrafter implements ModelDrafter {
  readonly #scheduler: Scheduler;
  readonly #sequence: Sequence;

  constructor(scheduler: Scheduler, sequence: Sequence) {
    this.#scheduler = scheduler;
    this.#sequence = sequence;
  }

  /** The target's cache is its own. */
  numBehind(): number {
    return 0;
  }

  async catchUp(): Promise<void> {}

  async draft(_text: readonly number[], known: readonly number[], count: number): Promise<readonly number[]> {
    try {
      return await this.#scheduler.draft(this.#sequence, known, count);
    } catch (error) {
      if (CapacityError.isInstance(error)) return []; // another sequence has taken the blocks meanwhile
      throw error;
    }
  }

  dispose(): void {}
}

/** A smaller model with a session of its own, which keeps the part of the text that it has computed. */
export class SmallerDrafter implements ModelDrafter {
  readonly #model: DraftModel;
  #session: DraftSession | undefined;
  /** Tokens of the last draft and of the text before it. */
  #numComputed = 0;

  constructor(model: DraftModel) {
    this.#model = model;
  }

  /** The last token is computed with every draft. */
  numBehind(text: readonly number[]): number {
    return Math.max(0, text.length - 1 - this.#numComputed);
  }

  async draft(
    text: readonly number[],
    _known: readonly number[],
    count: number,
    signal: AbortSignal | undefined,
  ): Promise<readonly number[]> {
    const maxTokens = Math.min(count, this.#model.contextSize - text.length);
    return maxTokens <= 0 ? [] : this.#generate(text, maxTokens, signal);
  }

  async catchUp(text: readonly number[], count: number, signal: AbortSignal | undefined): Promise<void> {
    const numTokens = this.#numComputed + count;
    if (numTokens < this.#model.contextSize) await this.#generate(text.slice(0, numTokens), 0, signal);
  }

  async #generate(
    text: readonly number[],
    maxTokens: number,
    signal: AbortSignal | undefined,
  ): Promise<readonly number[]> {
    const options = { temperature: 0, maxTokens, ignoreEos: true, speculative: 'off' } as const;
    try {
      this.#session ??= this.#model.createSession();
      const { tokens } = await this.#session
        .generate(text, signal === undefined ? options : { ...options, signal })
        .result();
      this.#numComputed = text.length + tokens.length;
      return tokens;
    } catch (error) {
      if (CapacityError.isInstance(error)) return []; // other sessions have its sessions or blocks
      throw error;
    }
  }

  dispose(): void {
    this.#session?.dispose();
  }
}
