/** Speculative decoding of one generation (arXiv:2211.17192): drafts, their lengths, and what became of them. */
import { SpeculationCounts, type SpeculationMetrics } from '../../metrics/speculation.js';
import { DraftLength } from './draft-length.js';
import { noDraft, type Draft, type Drafter, type ModelDrafter } from './drafter.js';

export interface SpeculationParts {
  readonly lookup: Drafter | undefined;
  /** Drafts where lookup finds nothing that pays off. */
  readonly model: ModelDrafter | undefined;
  /** Counts of all generations of the model. */
  readonly counts: SpeculationCounts;
  readonly now: () => number;
}

/** The class of drafts by models; those of lookup are the lengths of their matches. */
const modelClass = -1;

export class Speculation {
  readonly #parts: SpeculationParts;
  readonly #length = new DraftLength();
  readonly #counts = new SpeculationCounts();
  readonly #text: number[] = [];

  constructor(parts: SpeculationParts) {
    this.#parts = parts;
  }

  /** Appends a token of the prompt or of the output. */
  accept(tokenId: number): void {
    this.#parts.lookup?.accept(tokenId);
    if (this.#parts.model !== undefined) this.#text.push(tokenId);
  }

  /** Drafts for the next step. @param numKnown tokens of the step that are not drafted */
  async draft(numKnown: number, maxDrafted: number): Promise<Draft> {
    if (maxDrafted <= 0) return noDraft;
    const found = this.#parts.lookup?.draft(maxDrafted) ?? noDraft;
    const count = this.#length.choose(found.draftClass, numKnown, found.tokens.length);
    if (count > 0) return { tokens: found.tokens.slice(0, count), draftClass: found.draftClass };
    return this.#computeDraft(numKnown, maxDrafted);
  }

  async #computeDraft(numKnown: number, maxDrafted: number): Promise<Draft> {
    const { model, now } = this.#parts;
    if (model === undefined) return noDraft;
    const count = this.#length.choose(modelClass, numKnown, maxDrafted, true);
    if (count === 0) return noDraft;
    const beginMs = now();
    const tokens = await model.draft(this.#text, this.#text.slice(-numKnown), count);
    this.#length.noteDrafting(numKnown - 1 + tokens.length, now() - beginMs);
    return { tokens, draftClass: modelClass };
  }

  /** Records a step and what it accepted of its draft. */
  note({ tokens, draftClass }: Draft, numKnown: number, numAccepted: number, ms: number): void {
    this.#length.noteTime(numKnown + tokens.length, ms);
    this.#length.noteTokens(1 + numAccepted);
    if (tokens.length === 0) return;
    this.#length.noteDraft(draftClass, numKnown, tokens.length, numAccepted, draftClass === modelClass);
    for (const counts of [this.#counts, this.#parts.counts]) counts.add(tokens.length, numAccepted);
  }

  metrics(): SpeculationMetrics {
    return this.#counts.metrics();
  }

  dispose(): void {
    this.#parts.model?.dispose();
  }
}
