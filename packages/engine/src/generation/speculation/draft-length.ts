/** Chooses how many tokens to draft, from measured step times and acceptance rates. */
import { maxInvariantTokens } from '@winnow/ops';
import { modelClass } from './drafter.js';

/** Over any window of this many tokens, drafts may cost at most this share of the speed, by the measured step times. */
const maxLoss = 0.03;
const windowTokens = 64;
/** The same as a number of plain steps. */
const allowance = windowTokens * (1 / (1 - maxLoss) - 1);
/** Weight of earlier steps in acceptance rates: the last ten steps or so count. */
const memory = 0.9;
/** Step times are the shortest of so many steps. */
const numTimes = 5;
/** Steps of several tokens before their cost is known. The first ones are slow: code is new, and threads slept through plain steps. */
const numTrials = 5;
/** Minimum acceptance rate for these. */
const minTrialRate = 1 / 4;
/** Times of a size that no step had since so many steps are forgotten, and tried again. */
const maxAge = 128;

/** Accepted drafted tokens, and those that were compared, both weighted. */
interface Acceptance {
  accepted: number;
  compared: number;
}

export class DraftLength {
  readonly #acceptance = new Map<number, Acceptance>();
  /** Milliseconds of steps by number of tokens, and per token that a model drafts. */
  readonly #times = Array.from({ length: maxInvariantTokens + 1 }, () => new Times());
  readonly #drafting = new Times();
  /** Milliseconds of steps by number of tokens, measured, or between and beyond measured ones by interpolation; 0: unknown. */
  readonly #costs = new Float64Array(maxInvariantTokens + 1);
  /** Steps of several tokens that were measured. */
  #numMeasured = 0;
  #numSteps = 0;
  /**
   * What the last tokens cost beyond plain decoding, in plain steps: the first token of a step bears its cost, and those that were
   * accepted with it are free, in the order in which they arrived.
   */
  readonly #losses = new Float64Array(windowTokens);
  #nextLoss = 0;

  /** Records the time in which a model computed a draft. */
  noteDrafting(numTokens: number, ms: number): void {
    this.#drafting.add(ms / Math.max(1, numTokens), this.#numSteps);
  }

  /**
   * Records a step.
   * @param numKnown tokens of the step that were not drafted
   * @param ms its time, without that of drafting
   */
  noteStep(draftClass: number, numKnown: number, numDrafted: number, numAccepted: number, ms: number): void {
    const numTokens = numKnown + numDrafted;
    const isTrial = this.#numMeasured < numTrials;
    this.#times[numTokens]?.add(ms, ++this.#numSteps);
    this.#updateCosts();
    if (numDrafted > 0) this.#noteDraft(draftClass, numDrafted, numAccepted);
    const draftMs = draftClass === modelClass ? numDrafted * this.#drafting.shortest : 0;
    const plainMs = this.#costs[1] as number;
    const measuredMs = this.#costs[numTokens] ?? plainMs;
    const stepMs = isTrial ? Math.min(measuredMs, numTokens * plainMs) : measuredMs;
    this.#addLoss(plainMs === 0 ? 0 : (stepMs + draftMs) / plainMs - 1);
    for (let i = 0; i < numAccepted; i++) this.#addLoss(-1);
  }

  /**
   * The number of drafted tokens, at most `maxDrafted`, with which a step generates the most tokens per second. All that it costs is a loss
   * to windows that end with its first token, whatever it accepts: this may take the part of what is left of the allowance that is the
   * acceptance rate. As long as costs are unknown, single tokens are tried, which should cost at most a plain step each, and as much to
   * draft.
   */
  choose(draftClass: number, numKnown: number, maxDrafted: number): number {
    const plainMs = this.#costs[1] as number;
    if (plainMs === 0) return 0; // no step has been measured
    const isComputed = draftClass === modelClass;
    const rate = this.#rateOf(draftClass);
    const spent = this.#highestLoss();
    if (this.#numMeasured < numTrials || (isComputed && !this.#drafting.isKnown)) {
      return rate > minTrialRate && spent <= Math.max(0, allowance - (isComputed ? 2 : 1))
        ? Math.min(1, maxDrafted)
        : 0;
    }
    const draftMs = isComputed ? this.#drafting.shortest : 0;
    const limitMs = plainMs * (1 + rate * (allowance - spent));
    let best = 0;
    let bestSpeed = 1 / (this.#costs[numKnown] as number);
    let expected = 1;
    let probability = rate;
    for (let count = 1; count <= maxDrafted; count++) {
      const ms = (this.#costs[numKnown + count] as number) + count * draftMs;
      if (ms > limitMs) break;
      expected += probability;
      probability *= rate;
      if (expected / ms <= bestSpeed) continue;
      best = count;
      bestSpeed = expected / ms;
    }
    return best;
  }

  #noteDraft(draftClass: number, numDrafted: number, numAccepted: number): void {
    let acceptance = this.#acceptance.get(draftClass);
    if (acceptance === undefined) this.#acceptance.set(draftClass, (acceptance = { accepted: 0, compared: 0 }));
    acceptance.accepted = memory * acceptance.accepted + numAccepted;
    acceptance.compared = memory * acceptance.compared + Math.min(numDrafted, numAccepted + 1);
  }

  /** Probability that a drafted token is right if those before it are; 2/3 before anything is known. */
  #rateOf(draftClass: number): number {
    const acceptance = this.#acceptance.get(draftClass);
    return acceptance === undefined ? 2 / 3 : (acceptance.accepted + 2) / (acceptance.compared + 3);
  }

  #addLoss(loss: number): void {
    this.#losses[this.#nextLoss] = loss;
    this.#nextLoss = (this.#nextLoss + 1) % windowTokens;
  }

  /** The highest loss of the last tokens of all windows that the next token belongs to. */
  #highestLoss(): number {
    let [sum, highest] = [0, 0];
    for (let back = 1; back < windowTokens; back++) {
      sum += this.#losses[(this.#nextLoss - back + windowTokens) % windowTokens] as number;
      if (sum > highest) highest = sum;
    }
    return highest;
  }

  #updateCosts(): void {
    const plain = this.#times[1] as Times;
    let last = 0;
    this.#numMeasured = 0;
    for (let size = 1; size <= maxInvariantTokens; size++) {
      const times = this.#times[size] as Times;
      if (size > 1) times.forgetBefore(this.#numSteps - maxAge);
      if (!times.isKnown) continue;
      if (size > 1) this.#numMeasured += times.count;
      const from = last === 0 ? times.shortest : (this.#costs[last] as number);
      const perToken = last === 0 ? 0 : (times.shortest - from) / (size - last);
      for (let i = last + 1; i <= size; i++) this.#costs[i] = from + perToken * (i - last);
      last = size;
    }
    const lastMs = this.#costs[last] as number;
    const perToken = last === 1 ? lastMs : Math.max(0, lastMs - plain.shortest) / (last - 1);
    for (let size = last + 1; size <= maxInvariantTokens; size++) this.#costs[size] = lastMs + perToken * (size - last);
  }
}

/** The latest times of one kind of step. */
class Times {
  count = 0;
  /** The shortest of them: pauses of the process, and threads that have to wake up, only make steps longer. */
  shortest = 0;
  readonly #latest = new Float64Array(numTimes);
  #next = 0;
  #lastStep = 0;

  get isKnown(): boolean {
    return this.count > 0;
  }

  add(ms: number, step: number): void {
    this.#latest[this.#next] = ms;
    this.#next = (this.#next + 1) % numTimes;
    this.count = Math.min(numTimes, this.count + 1);
    this.#lastStep = step;
    this.shortest = ms;
    for (let i = 0; i < this.count; i++) this.shortest = Math.min(this.shortest, this.#latest[i] as number);
  }

  forgetBefore(step: number): void {
    if (this.#lastStep >= step) return;
    this.count = 0;
    this.#next = 0;
  }
}
