/** Speculative decoding of one generation (arXiv:2211.17192): drafts, their lengths, and what became of them. */
import { SpeculationCounts, type SpeculationMetrics } from '../../metrics/speculation.js';
import { DraftLength } from './draft-length.js';
import { modelClass, noClass, type Drafter, type ModelDrafter } from './drafter.js';
import type { StepCosts } from '../step-costs.js';

export interface SpeculationParts {
  readonly lookup: Drafter | undefined;
  /** Drafts where lookup finds nothing that pays off. */
  readonly model: ModelDrafter | undefined;
  /** Counts of all generations of the model. */
  readonly counts: SpeculationCounts;
  /** What its steps cost. */
  readonly costs: StepCosts;
  readonly now: () => number;
}

const noTokens: readonly number[] = [];

export class Speculation {
  readonly #parts: SpeculationParts;
  readonly #length: DraftLength;
  readonly #counts = new SpeculationCounts();
  readonly #text: number[] = [];
  /** The class of the last draft. */
  #draftClass = noClass;
  /** The class of a draft that was found but not made, and its first token. */
  #undraftedClass = noClass;
  #undraftedToken = 0;

  constructor(parts: SpeculationParts) {
    this.#parts = parts;
    this.#length = new DraftLength(parts.costs);
  }

  /** Appends a token of the prompt or of the output. */
  accept(tokenId: number): void {
    if (this.#undraftedClass !== noClass) {
      this.#length.noteUndrafted(this.#undraftedClass, tokenId === this.#undraftedToken);
      this.#undraftedClass = noClass;
    }
    this.#parts.lookup?.accept(tokenId);
    if (this.#parts.model !== undefined) this.#text.push(tokenId);
  }

  /**
   * Lets the model that drafts compute the prompt, and measures how long it drafts: twice, since the first draft also computes the prompt.
   * Cost: the prompt, and two tokens.
   */
  async prepare(signal: AbortSignal | undefined): Promise<void> {
    const { model } = this.#parts;
    if (model === undefined) return;
    for (let run = 0; run < 2; run++) await this.#timeDraft(model, 1, 1, signal);
    this.#length.begin();
  }

  /** Drafts for the next step. @param numKnown tokens of the step that are not drafted */
  draft(
    numKnown: number,
    maxDrafted: number,
    signal: AbortSignal | undefined,
  ): readonly number[] | Promise<readonly number[]> {
    const { lookup, model } = this.#parts;
    this.#draftClass = noClass;
    if (maxDrafted <= 0) return noTokens;
    const found = lookup?.find() ?? noClass;
    const count = found === noClass ? 0 : this.#length.choose(found, numKnown, maxDrafted);
    if (lookup === undefined || count === 0) {
      this.#undraftedClass = found;
      if (found !== noClass) this.#undraftedToken = lookup?.draft(1)[0] as number;
      return model === undefined ? noTokens : this.#computeDraft(model, numKnown, maxDrafted, signal);
    }
    this.#draftClass = found;
    return lookup.draft(count);
  }

  async #computeDraft(
    model: ModelDrafter,
    numKnown: number,
    maxDrafted: number,
    signal: AbortSignal | undefined,
  ): Promise<readonly number[]> {
    const numBehind = model.numBehind(this.#text);
    const count = this.#length.choose(modelClass, numKnown, maxDrafted, numBehind);
    if (count > 0) {
      this.#draftClass = modelClass;
      return this.#timeDraft(model, numKnown, count, signal);
    }
    const numCaughtUp = numBehind === 0 ? 0 : this.#length.chooseBehind(numBehind);
    if (numCaughtUp > 0) {
      const beginMs = this.#parts.now();
      await model.catchUp(this.#text, numCaughtUp, signal);
      this.#length.noteDrafting(0, numCaughtUp, this.#parts.now() - beginMs);
    }
    return noTokens;
  }

  async #timeDraft(
    model: ModelDrafter,
    numKnown: number,
    count: number,
    signal: AbortSignal | undefined,
  ): Promise<readonly number[]> {
    const { now } = this.#parts;
    const text = this.#text;
    const numBehind = model.numBehind(text);
    const beginMs = now();
    const tokens = await model.draft(text, text.slice(-numKnown), count, signal);
    this.#length.noteDrafting(numKnown - 1 + tokens.length, numBehind, now() - beginMs);
    return tokens;
  }

  /** Records a step, its time without that of drafting, and what it accepted of the last draft. */
  note(numDrafted: number, numKnown: number, numAccepted: number, ms: number): void {
    this.#length.noteStep(this.#draftClass, numKnown, numDrafted, numAccepted, ms);
    if (numDrafted === 0) return;
    this.#counts.add(numDrafted, numAccepted);
    this.#parts.counts.add(numDrafted, numAccepted);
  }

  metrics(): SpeculationMetrics {
    return this.#counts.metrics();
  }

  dispose(): void {
    this.#parts.model?.dispose();
  }
}
