/** Drafts by models: the same one under a sparse policy, or a smaller one. */
import { CapacityError } from '@winnow/tensor';
import type { Scheduler } from '../../runtime/scheduler.js';
import type { Sequence } from '../../runtime/sequence.js';
import type { DraftModel, DraftSession } from './draft-model.js';
import type { ModelDrafter } from './drafter.js';

/** The same weights under a sparse policy, over the target's cache; its tokens are taken back after every draft. */
export class SelfDrafter implements ModelDrafter {
  readonly #scheduler: Scheduler;
  readonly #sequence: Sequence;

  constructor(scheduler: Scheduler, sequence: Sequence) {
    this.#scheduler = scheduler;
    this.#sequence = sequence;
  }

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

  constructor(model: DraftModel) {
    this.#model = model;
  }

  async draft(text: readonly number[], _known: readonly number[], count: number): Promise<readonly number[]> {
    const maxTokens = Math.min(count, this.#model.contextSize - text.length);
    if (maxTokens <= 0) return [];
    this.#session ??= this.#model.createSession();
    const options = { temperature: 0, maxTokens, ignoreEos: true, speculative: 'off' } as const;
    const { tokens } = await this.#session.generate(text, options).result();
    return tokens;
  }

  dispose(): void {
    this.#session?.dispose();
  }
}
