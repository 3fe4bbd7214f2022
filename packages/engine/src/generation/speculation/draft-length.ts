/**
 * Chooses how many tokens to draft, from measured step times and acceptance rates.
 *
 * The loss of a window of 64 tokens is the time of its steps, with drafting, less its number of tokens, in plain steps. The first token of
 * a step bears its cost c, so that it adds c - 1, and each accepted token adds -1. Let L be the highest loss that a window, which the next
 * step is part of, has so far. A draft is made only if L + c - 1 <= 64 / 0.972 - 64 = 1.84: a speed of 0.97, less a margin for costs that
 * change. What follows the first token, accepted drafts and plain steps, raises no loss, so that no window is slower, by what its steps
 * usually cost, even if the draft is wrong throughout. Tokens that are accepted later in a window repay what a miss has cost it.
 *
 * Where text is copied, this limit alone would rule out long drafts, whose misses are rare and soon repaid. Where drafts of lookup have
 * saved more than 4 plain steps in the last 64 tokens, two fifths of the rest, at most 4, may therefore be lost again: the 64 tokens after
 * the end of a copied passage may take 1.84 + 4 plain steps longer, at a speed of 0.916, and further 64 tokens 1.84 each, so that 192 may
 * be at 0.953. Together with the 64 tokens before them they are not slower than plain steps.
 *
 * What steps usually cost is a median of steps that had plain ones beside them: a machine that is slower for a while than it was during
 * the last plain steps makes no draft more expensive.
 */
import { StepCosts, Times } from '../step-costs.js';
import { modelClass } from './drafter.js';

const windowTokens = 64;
/** The loss of a window that drafts may cause. */
const allowance = windowTokens / 0.972 - windowTokens;
/** What drafts of lookup may lose beyond it, in plain steps: a share of what the last 64 tokens have saved beyond `from`. */
const credit = { from: 4, share: 0.4, max: 4 } as const;
/**
 * Share of the remaining allowance, multiplied by the acceptance rate, that a draft by a model may use: only drafts that are made
 * show whether they are right.
 */
const maxModelShare = 0.8;
/** Weight of earlier steps in acceptance rates: the last ten steps or so count. */
const memory = 0.9;
/** Weight of what is known of drafts after each time that none was made, so that drafts are tried again after some 100 steps. */
const idleMemory = 0.99;
/** Prior of the acceptance rate: its weight in compared tokens, and its value. */
const priorCompared = 3;
const priorRate = 2 / 3;
/**
 * Steps of several tokens before drafts become longer. The first ones are slow: their code is not compiled yet, and
 * threads that slept during plain steps have to wake up.
 */
const numTrials = 5;
/** Number of plain steps whose median says how fast the machine is. */
const numPlainSteps = 3;
/**
 * How long that holds, in steps with drafts: for measuring a size whose cost is known, for trying one whose cost is not, and until plain
 * steps have to follow.
 */
const maxSince = { known: 8, unknown: 24, drafts: 96 } as const;
/** After three steps in a row of 1.5 times the usual cost, costs or the machine have changed. */
const surprise = { numSteps: 3, times: 1.5 } as const;
/** Cost of a drafted token before one was timed, in plain steps; a draft that takes longer hardly pays. */
const unknownDrafting = 0.5;
/** Minimum number of tokens that a model computes without drafting. */
const minBehind = 16;
/** Minimum acceptance rate for trials. */
const minTrialRate = 1 / 4;

/** Accepted drafted tokens, and those that were compared, both weighted. */
interface Acceptance {
  accepted: number;
  compared: number;
}

/** The time of a draft, and of the tokens that the model computed before. */
interface DraftTime {
  readonly numTokens: number;
  readonly numBehind: number;
  readonly ms: number;
}

export class DraftLength {
  readonly #acceptance = new Map<number, Acceptance>();
  readonly #all: Acceptance = { accepted: priorRate * priorCompared, compared: priorCompared };
  /** Milliseconds of plain steps, of one token. */
  readonly #plain = new Times();
  /** Plain steps towards the next measurement of the machine's speed. */
  #numPlain = 0;
  /** Steps with drafts since the last one; plain steps come first. */
  #numSince: number = maxSince.drafts;
  /** How many of the last steps in a row took much longer than usual. */
  #numSlow = 0;
  readonly #costs: StepCosts;
  /** Costs in plain steps per token that a model drafts, and per token that it computes before. */
  readonly #drafting = new Times();
  readonly #catchingUp = new Times();
  /** Drafts before the first plain step. */
  readonly #early: DraftTime[] = [];
  /** Milliseconds of drafting since the last step. */
  #draftingMs = 0;
  /**
   * What the last tokens cost beyond plain decoding, in plain steps: the first token of a step bears its cost, and those that were
   * accepted with it are free, in the order in which they arrived.
   */
  readonly #losses = new Float64Array(windowTokens);
  #nextLoss = 0;

  /** @param costs what generations of the model have measured */
  constructor(costs: StepCosts = new StepCosts()) {
    this.#costs = costs;
  }

  /**
   * Records the time in which a model computed a draft.
   * @param numBehind tokens that it computed before the draft
   */
  noteDrafting(numTokens: number, numBehind: number, ms: number): void {
    this.#draftingMs += ms;
    this.#early.push({ numTokens, numBehind, ms });
    if (this.#plain.isKnown) this.#noteEarly();
  }

  /** Begins to decode: what was drafted before belongs to the prompt. */
  begin(): void {
    this.#draftingMs = 0;
  }

  /**
   * Records a step.
   * @param numKnown tokens of the step that were not drafted
   * @param ms its time, without that of drafting
   */
  noteStep(draftClass: number, numKnown: number, numDrafted: number, numAccepted: number, ms: number): void {
    const numTokens = numKnown + numDrafted;
    if (numTokens === 1) this.#notePlain(ms);
    const plainMs = this.#plain.median;
    if (plainMs > 0) {
      const cost = numTokens === 1 ? 1 : this.#noteLong(numTokens, ms / plainMs);
      this.#addLoss(this.#draftingMs / plainMs + cost - 1);
    }
    this.#draftingMs = 0;
    if (numDrafted > 0) this.#noteDraft(draftClass, numDrafted, numAccepted);
    for (let i = 0; i < numAccepted; i++) this.#addLoss(-1);
  }

  /** @returns what counts as the cost of a step of several tokens */
  #noteLong(numTokens: number, cost: number): number {
    const costs = this.#costs;
    const isFresh = this.#numSince++ < (costs.isKnown(numTokens) ? maxSince.known : maxSince.unknown);
    this.#numSlow = cost > surprise.times * costs.of(numTokens) ? this.#numSlow + 1 : 0;
    if (this.#numSince > maxSince.unknown || this.#numSlow === surprise.numSteps) this.#numPlain = 0;
    return costs.note(numTokens, isFresh ? cost : undefined);
  }

  #notePlain(ms: number): void {
    this.#costs.notePlain();
    this.#plain.add(ms, this.#costs.numSteps);
    this.#noteEarly();
    if (++this.#numPlain < numPlainSteps) return;
    if (this.#numSlow >= surprise.numSteps) this.#costs.forget();
    this.#numPlain = 0;
    this.#numSince = 0;
    this.#numSlow = 0;
  }

  /** Whether plain steps have to show how fast the machine is. */
  get #isDue(): boolean {
    return this.#numSince >= maxSince.drafts || this.#numSlow >= surprise.numSteps;
  }

  /**
   * The number of drafted tokens, at most `maxDrafted`, with which a step generates the most tokens per second within the limits of the
   * file's header. As long as costs are unknown, single tokens are tried, which should cost at most a plain step each; then drafts become
   * twice as long at most.
   * @param numBehind tokens that a model has to compute before it drafts
   */
  choose(draftClass: number, numKnown: number, maxDrafted: number, numBehind = 0): number {
    if (this.#isDue) return 0;
    const count = this.#best(draftClass, numKnown, maxDrafted, numBehind * this.#catchingUp.median);
    if (count === 0 && draftClass === modelClass) this.#forget(draftClass);
    return count;
  }

  /**
   * How many of the tokens that a model has to compute before it drafts it should compute now, without a draft: otherwise they become so
   * many while no drafts are made that a draft would cost too much. None for a model that is too slow to follow the text.
   */
  chooseBehind(numBehind: number): number {
    const cost = this.#catchingUp.median;
    if (this.#rateOf(modelClass) <= minTrialRate || cost * windowTokens > allowance) return 0;
    const left = maxModelShare * (allowance - this.#highestLoss());
    return cost * Math.min(numBehind, minBehind) > left ? 0 : Math.min(numBehind, Math.floor(left / cost));
  }

  /** @param behind the cost of what a model computes before it drafts */
  #best(draftClass: number, numKnown: number, maxDrafted: number, behind: number): number {
    const isComputed = draftClass === modelClass;
    const drafting = !isComputed ? 0 : this.#drafting.isKnown ? this.#drafting.shortest : unknownDrafting;
    const rate = this.#rateOf(draftClass);
    const left = allowance + (isComputed ? 0 : this.#credit()) - this.#highestLoss();
    const costs = this.#costs;
    costs.forgetOld();
    if (costs.maxKnown === 1 || costs.numLong < numTrials) {
      return rate > minTrialRate && 1 + drafting + behind <= left ? Math.min(1, maxDrafted) : 0;
    }
    let best = 0;
    let bestSpeed = 1 / costs.of(numKnown);
    let expected = 1;
    let probability = rate;
    const maxTokens = this.#numSince < maxSince.unknown ? 2 * costs.maxKnown : costs.maxKnown;
    for (let count = 1; count <= maxDrafted && numKnown + count <= maxTokens; count++) {
      const cost = costs.of(numKnown + count) + count * drafting + behind;
      // a longer one leaves room for a token after a miss, so that accepted tokens can repay it, unless its cost is to be found out
      const spare = count === 1 || numKnown + count > costs.maxKnown ? 0 : costs.of(numKnown + 1) - 1;
      const room = isComputed ? maxModelShare * rate * left : left - spare;
      if (cost - 1 > room) break;
      expected += probability;
      probability *= rate;
      if (expected / cost <= bestSpeed) continue;
      best = count;
      bestSpeed = expected / cost;
    }
    return best;
  }

  /** Records whether the first token of a draft that was not made would have been right. */
  noteUndrafted(draftClass: number, isRight: boolean): void {
    this.#noteDraft(draftClass, 1, isRight ? 1 : 0);
  }

  #noteEarly(): void {
    for (const { numTokens, numBehind, ms } of this.#early) {
      const cost = ms / this.#plain.median;
      if (numBehind === 0) this.#drafting.add(cost / Math.max(1, numTokens), this.#costs.numSteps);
      else
        this.#catchingUp.add(Math.max(0, cost - numTokens * this.#drafting.shortest) / numBehind, this.#costs.numSteps);
    }
    this.#early.length = 0;
  }

  #noteDraft(draftClass: number, numDrafted: number, numAccepted: number): void {
    for (const acceptance of [this.#acceptanceOf(draftClass), this.#all]) {
      acceptance.accepted = memory * acceptance.accepted + numAccepted;
      acceptance.compared = memory * acceptance.compared + Math.min(numDrafted, numAccepted + 1);
    }
  }

  /** Forgets some of what is known of drafts that are not made. */
  #forget(draftClass: number): void {
    const acceptance = this.#acceptanceOf(draftClass);
    acceptance.accepted += (1 - idleMemory) * (priorRate * priorCompared - acceptance.accepted);
    acceptance.compared += (1 - idleMemory) * (priorCompared - acceptance.compared);
  }

  #acceptanceOf(draftClass: number): Acceptance {
    let acceptance = this.#acceptance.get(draftClass);
    if (acceptance === undefined) {
      // a class that is new is first taken to be like the others
      const { accepted, compared } = this.#all;
      acceptance = { accepted: (priorCompared * accepted) / compared, compared: priorCompared };
      this.#acceptance.set(draftClass, acceptance);
    }
    return acceptance;
  }

  /** Probability that a drafted token is right if those before it are. */
  #rateOf(draftClass: number): number {
    const { accepted, compared } = this.#acceptanceOf(draftClass);
    return accepted / compared;
  }

  #addLoss(loss: number): void {
    this.#losses[this.#nextLoss] = loss;
    this.#nextLoss = (this.#nextLoss + 1) % windowTokens;
  }

  /** What drafts of lookup may lose beyond the allowance. */
  #credit(): number {
    let saved = 0;
    for (const loss of this.#losses) saved -= loss;
    return Math.min(credit.max, Math.max(0, credit.share * (saved - credit.from)));
  }

  /** The highest loss so far of all windows that the next token belongs to. */
  #highestLoss(): number {
    let [sum, highest] = [0, 0];
    for (let back = 1; back < windowTokens; back++) {
      sum += this.#losses[(this.#nextLoss - back + windowTokens) % windowTokens] as number;
      if (sum > highest) highest = sum;
    }
    return highest;
  }
}
