/** Chooses how many tokens to draft, from measured step times and acceptance rates. */

/** Wrong drafts should cost at most this share of the speed over a window of this many tokens; times that vary may make it more. */
const maxLoss = 0.03;
const windowTokens = 64;
/** The same as a number of plain steps. */
const allowance = windowTokens * (1 / (1 - maxLoss) - 1);
/** Part of the allowance that can be spent at any time; the rest is earned over a window. */
const startCredit = (3 / 4) * allowance;
const creditPerToken = (allowance - startCredit) / windowTokens;
/** Assumed cost of a further token, in plain steps, before a step of several tokens was measured. */
const assumedSlope = 1 / 4;
/** Weight of earlier steps in acceptance rates: the last ten steps or so count. */
const memory = 0.9;
/** Step times are medians of so many steps, so that a pause of the process changes nothing. */
const numTimes = 5;

/** Accepted drafted tokens, and those that were compared, both weighted. */
interface Acceptance {
  accepted: number;
  compared: number;
}

export class DraftLength {
  /** Milliseconds of steps by number of tokens. */
  readonly #times = new Map<number, StepTimes>();
  readonly #acceptance = new Map<number, Acceptance>();
  /** Milliseconds per token that a model drafts. */
  readonly #drafting = new StepTimes();
  /** Plain steps that wrong drafts may still cost. */
  #credit = startCredit;

  /** Records the time of a step. */
  noteTime(numTokens: number, ms: number): void {
    const times = this.#times.get(numTokens) ?? new StepTimes();
    times.add(ms);
    this.#times.set(numTokens, times);
  }

  /** Records the time in which a model computed a draft. */
  noteDrafting(numTokens: number, ms: number): void {
    this.#drafting.add(ms / Math.max(1, numTokens));
  }

  /**
   * Records the verification of a draft.
   * @param numKnown tokens of the step that were not drafted
   * @param isComputed whether a model drafted
   */
  noteDraft(
    draftClass: number,
    numKnown: number,
    numDrafted: number,
    numAccepted: number,
    isComputed: boolean = false,
  ): void {
    const { accepted, compared } = this.#acceptance.get(draftClass) ?? { accepted: 0, compared: 0 };
    this.#acceptance.set(draftClass, {
      accepted: memory * accepted + numAccepted,
      compared: memory * compared + Math.min(numDrafted, numAccepted + 1),
    });
    const plainMs = this.#cost(numKnown, assumedSlope);
    const ms = this.#cost(numKnown + numDrafted, assumedSlope) + (isComputed ? numDrafted * this.#drafting.median : 0);
    const loss = plainMs === 0 ? 0 : ms / plainMs - 1 - numAccepted;
    this.#credit = Math.min(startCredit, this.#credit - loss);
  }

  /** Records tokens that were generated. */
  noteTokens(numTokens: number): void {
    this.#credit = Math.min(startCredit, this.#credit + creditPerToken * numTokens);
  }

  /**
   * The number of drafted tokens, at most `maxDrafted`, with which a step generates the most tokens per second. The longest
   * draft is limited by the credit, as if nothing of it were accepted.
   * @param isComputed whether a model drafts, which takes time for every token
   */
  choose(draftClass: number, numKnown: number, maxDrafted: number, isComputed: boolean = false): number {
    const plainMs = this.#cost(numKnown, assumedSlope);
    if (plainMs === 0) return 0; // no step has been measured
    const rate = this.#rateOf(draftClass);
    const draftMs = isComputed ? this.#drafting.median : 0;
    let best = 0;
    let bestSpeed = 1 / plainMs;
    let expected = 1;
    for (let count = 1, probability = rate; count <= maxDrafted; count++, probability *= rate) {
      if (this.#cost(numKnown + count, 1) + count * draftMs > (1 + this.#credit) * plainMs) break;
      expected += probability;
      const speed = expected / (this.#cost(numKnown + count, assumedSlope) + count * draftMs);
      if (speed <= bestSpeed) continue;
      best = count;
      bestSpeed = speed;
    }
    return best;
  }

  /** Probability that a drafted token is right if those before it are; 1/2 before anything is known. */
  #rateOf(draftClass: number): number {
    const { accepted, compared } = this.#acceptance.get(draftClass) ?? { accepted: 0, compared: 0 };
    return (accepted + 1) / (compared + 2);
  }

  /**
   * Milliseconds of a step, between measured ones by interpolation; 0 if none was measured.
   * @param slope cost of a further token in plain steps, if only plain steps were measured
   */
  #cost(numTokens: number, slope: number): number {
    let [below, above] = [0, Infinity];
    for (const measured of this.#times.keys()) {
      if (measured <= numTokens) below = Math.max(below, measured);
      else above = Math.min(above, measured);
    }
    const msOf = (count: number): number => this.#times.get(count)?.median ?? 0;
    const belowMs = msOf(below);
    if (below === numTokens) return belowMs;
    if (below === 0) return msOf(above);
    if (above < Infinity) return belowMs + ((msOf(above) - belowMs) * (numTokens - below)) / (above - below);
    const first = Math.min(...this.#times.keys());
    const perToken = first < below ? Math.max(0, belowMs - msOf(first)) / (below - first) : slope * belowMs;
    return belowMs + perToken * (numTokens - below);
  }
}

/** The times of the latest steps of one size. */
class StepTimes {
  median = 0;
  readonly #latest: number[] = [];
  #next = 0;

  add(ms: number): void {
    this.#latest[this.#next] = ms;
    this.#next = (this.#next + 1) % numTimes;
    const sorted = this.#latest.toSorted((a, b) => a - b);
    this.median = sorted[sorted.length >> 1] as number;
  }
}
