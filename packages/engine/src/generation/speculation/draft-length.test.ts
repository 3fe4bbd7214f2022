/** Lengths of drafts on formulas of costs: no clock is read. */
import { createRng } from '@winnow/tensor';
import { sampled } from '@winnow/test-utils';
import { describe, expect, test } from 'vitest';
import { DraftLength } from './draft-length.js';
import { StepCosts } from '../step-costs.js';
import { modelClass, noClass } from './drafter.js';

interface Costs {
  /** Cost of a step of this many tokens in plain steps; `index` counts steps. */
  readonly step: (numTokens: number, index: number) => number;
  /** Cost of a drafted token, and of one that the model that drafts has to compute before, in plain steps; undefined: lookup. */
  readonly drafting?: { readonly perToken: number; readonly perTokenBehind: number };
  /** Milliseconds of a plain step after this many tokens. Default: 10. */
  readonly plainMs?: (numTokens: number) => number;
}

const numPrompt = 1000;

/** The probability that a drafted token is right, by its index in the text and the length of the draft. */
type RateAt = (token: number, numDrafted: number) => number;

/** A generation of `numTokens` tokens whose drafts are right with a probability. Times are after each token. */
function simulate(costs: Costs, rateAt: RateAt, numTokens: number, seed = 1, known = new StepCosts()) {
  const rng = createRng(seed);
  const length = new DraftLength(known);
  const { step, drafting, plainMs = () => 10 } = costs;
  const draftClass = drafting === undefined ? 2 : modelClass;
  const ends: number[] = [];
  const counts: number[] = [];
  const accepts: number[] = [];
  let ms = 0;
  let numComputed = 0;
  const draftCost = (count: number, numBehind: number): number => {
    const cost = drafting === undefined ? 0 : count * drafting.perToken + numBehind * drafting.perTokenBehind;
    const draftMs = cost * plainMs(ends.length);
    if (drafting !== undefined) length.noteDrafting(count, numBehind, draftMs);
    return draftMs;
  };
  if (drafting !== undefined) {
    draftCost(1, numPrompt);
    draftCost(1, 0);
    length.begin();
  }
  for (let index = 0; ends.length < numTokens; index++) {
    const numBehind = drafting === undefined ? 0 : Math.max(0, ends.length - 1 - numComputed);
    const count = length.choose(draftClass, 1, 15, numBehind);
    let accepted = 0;
    if (count === 0 && drafting === undefined) {
      length.noteUndrafted(draftClass, rng.nextFloat() < rateAt(ends.length, 1));
    }
    while (accepted < count && rng.nextFloat() < rateAt(ends.length + accepted, count)) accepted++;
    const numCaughtUp = count > 0 || numBehind === 0 ? numBehind : length.chooseBehind(numBehind);
    if (count + numCaughtUp > 0) {
      ms += draftCost(count, numCaughtUp);
      numComputed = count > 0 ? ends.length + count : numComputed + numCaughtUp;
    }
    const stepMs = step(1 + count, index) * plainMs(ends.length);
    ms += stepMs;
    length.noteStep(count === 0 ? noClass : draftClass, 1, count, accepted, stepMs);
    for (let token = 0; token <= accepted; token++) ends.push(ms);
    counts.push(count);
    accepts.push(accepted);
  }
  const plain = ends.map((_, token) => plainMs(token));
  return { ends, counts, accepted: accepts, plain, speed: plain.reduce((sum, each) => sum + each, 0) / ms };
}

/** The lowest speed over any so many tokens, relative to plain decoding. */
function lowestSpeed({ ends, plain }: Pick<ReturnType<typeof simulate>, 'ends' | 'plain'>, numTokens: number): number {
  let lowest = Infinity;
  for (let begin = 0; begin + numTokens <= ends.length; begin++) {
    // accepted tokens of a step end together: a window begins with a step
    if (begin > 0 && ends[begin] === ends[begin - 1]) continue;
    const from = begin === 0 ? 0 : (ends[begin - 1] as number);
    const plainMs = plain.slice(begin, begin + numTokens).reduce((sum, each) => sum + each, 0);
    lowest = Math.min(lowest, plainMs / ((ends[begin + numTokens - 1] as number) - from));
  }
  return lowest;
}

const steps: Readonly<Record<string, Costs['step']>> = {
  'further tokens cost a tenth': (numTokens) => 1 + 0.1 * (numTokens - 1),
  'further tokens cost two fifths': (numTokens) => 1 + 0.4 * (numTokens - 1),
  'steps share nothing': (numTokens) => numTokens,
};
const draftings: Readonly<Record<string, Costs['drafting']>> = {
  lookup: undefined,
  'a fast model': { perToken: 0.1, perTokenBehind: 0.02 },
  'a slow model': { perToken: 0.8, perTokenBehind: 0.2 },
  'a model slower than the target': { perToken: 2, perTokenBehind: 0.5 },
};
/** Milliseconds of plain steps: the context grows, or other sessions join at token 700. */
const plainTimes: Readonly<Record<string, Costs['plainMs']>> = {
  'equal steps': undefined,
  'steps that grow': (numTokens) => 10 + numTokens / 40,
  'steps that double': (numTokens) => (numTokens > 700 ? 20 : 10),
};
const rates: Readonly<Record<string, RateAt>> = {
  'none is right': () => 0,
  'a third is right': () => 1 / 3,
  'most are right': () => 0.9,
  'all are right': () => 1,
  'right and wrong in turns': (token) => (token % 300 < 150 ? 1 : 0),
  'only short drafts are right': (_token, numDrafted) => (numDrafted < 6 ? 1 : 0),
};

/** The lowest speed of so many tokens after drafts of `lookup` that saved time: the allowance, and a credit of 4 plain steps. */
const lowestAfterCopies = (numTokens: number): number => numTokens / (numTokens / 0.972 + 4);

/** The lowest speed of 64 tokens below 0.97, together with the 64 tokens before them; Infinity without such tokens. */
function lowestWithCopies({ ends, plain }: Pick<ReturnType<typeof simulate>, 'ends' | 'plain'>): number {
  const endOf = (token: number): number => (token === 0 ? 0 : (ends[token - 1] as number));
  const speed = (from: number, to: number): number =>
    plain.slice(from, to).reduce((sum, each) => sum + each, 0) / (endOf(to) - endOf(from));
  let lowest = Infinity;
  for (let begin = 64; begin + 64 <= ends.length; begin++) {
    if (endOf(begin) === ends[begin] || speed(begin, begin + 64) >= 0.97) continue;
    lowest = Math.min(lowest, speed(begin - 64, begin + 64));
  }
  return lowest;
}

/** By drafts of models, 0.97 of plain decoding over any 64 tokens, by those of lookup also by their credit below it. */
function expectLimits(times: Pick<ReturnType<typeof simulate>, 'ends' | 'plain'>, isLookup: boolean, name = ''): void {
  if (!isLookup) expect(lowestSpeed(times, 64), name).toBeGreaterThanOrEqual(0.97);
  for (const numTokens of isLookup ? [64, 128, 192] : []) {
    expect(lowestSpeed(times, numTokens), name).toBeGreaterThanOrEqual(lowestAfterCopies(numTokens));
  }
  if (isLookup) expect(lowestWithCopies(times), name).toBeGreaterThanOrEqual(1);
}

/** Passages of random lengths: right, wrong, right with a probability, or wrong at every so many tokens. */
function randomPassages(seed: number): RateAt {
  const rng = createRng(seed);
  const rateOf: number[] = [];
  while (rateOf.length < 1600) {
    const length = 3 + rng.nextInt(rng.nextFloat() < 0.5 ? 30 : 200);
    const kind = rng.nextInt(4);
    const rate = kind < 2 ? kind : rng.nextFloat();
    for (let i = 0; i < length; i++) rateOf.push(kind === 3 ? Math.min(1, i % (2 + (length % 12))) : rate);
  }
  return (token) => rateOf[token] ?? 0;
}

describe('whatever comes next, never slower than the limits', () => {
  const cases = Object.keys(steps).flatMap((step) =>
    Object.keys(draftings).flatMap((drafting) => Object.keys(rates).map((rate) => [step, drafting, rate] as const)),
  );
  test.each(cases)('%s, %s, %s', (step, drafting, rate) => {
    for (const plainMs of Object.values(plainTimes)) {
      const costs = { step: steps[step]!, drafting: draftings[drafting], plainMs } as Costs;
      for (const seed of [1, 2]) expectLimits(simulate(costs, rates[rate]!, 1500, seed), drafting === 'lookup');
    }
  });

  test.each(['none is right', 'most are right', 'all are right'])('lookup, %s: 0.97 over any 64 tokens', (rate) => {
    for (const step of Object.values(steps)) {
      const lows = [1, 2].map((seed) => lowestSpeed(simulate({ step }, rates[rate]!, 1500, seed), 64));
      expect(Math.min(...lows)).toBeGreaterThanOrEqual(0.97);
    }
  });

  test('lookup in random passages', () => {
    const seeds = Array.from({ length: 40 }, (_, index) => index + 1);
    for (const [index, costOfFurther] of [0.05, 0.1, 0.4].entries()) {
      const step: Costs['step'] = (numTokens) => 1 + costOfFurther * (numTokens - 1);
      // `npm test`: each seed with one of the costs
      for (const seed of sampled(seeds, 3, index)) {
        expectLimits(simulate({ step }, randomPassages(seed), 1500, seed), true);
      }
    }
  });

  test('costs that rise in steps, once each size was tried', () => {
    const step: Costs['step'] = (numTokens) => 1 + 0.1 * (numTokens - 1) + (numTokens > 2 ? 0.6 : 0);
    for (const [name, rateAt] of Object.entries(rates)) {
      const known = new StepCosts();
      for (const rate of [1, 0.8, 0.6]) simulate({ step }, () => rate, 1000, 3, known);
      for (const seed of [1, 2]) expectLimits(simulate({ step }, rateAt, 1500, seed, known), true, name);
    }
  });
});

describe('costs and machines that change', () => {
  test('one plain step that was interrupted makes no drafts that are wrong look cheap', () => {
    const plainMs = (numTokens: number): number => (numTokens === 0 ? 30 : 10);
    const { counts } = simulate({ step: steps['further tokens cost two fifths']!, plainMs }, () => 0, 600);
    expect(counts.filter((count) => count > 0).length).toBeLessThan(0.1 * counts.length);
  });

  test('when drafts begin to cost three times as much, few wrong ones are made before 64 tokens without', () => {
    const step: Costs['step'] = (numTokens, index) =>
      (1 + 0.1 * (numTokens - 1)) * (numTokens > 1 && index > 200 ? 3 : 1);
    const { counts, accepted } = simulate({ step }, () => 0.2, 2000);
    const wrong = counts.flatMap((count, index) => (index > 200 && count > 0 && accepted[index] === 0 ? [index] : []));
    const pauses = wrong.slice(1).map((index, at) => index - (wrong[at] as number));
    expect(pauses.findIndex((pause) => pause > 60)).toBeLessThan(5);
    expect(pauses.filter((pause) => pause > 60).length).toBeGreaterThan(2);
  });

  test('a machine that is slower for a while stops no drafts', () => {
    const even: Costs['step'] = (numTokens) => 1 + 0.1 * (numTokens - 1);
    const numSteps = (plainMs: (numTokens: number) => number): number =>
      simulate({ step: even, plainMs }, () => 0.97, 1000).counts.length;
    const slower = (numTokens: number): number => (numTokens % 200 < 100 ? 10 : 25);
    expect(numSteps(slower)).toBeLessThan(1.2 * numSteps(() => 10));
  });

  test('plain steps are due when the last ones were long ago', () => {
    const { counts } = simulate({ step: steps['further tokens cost two fifths']! }, () => 1, 2000);
    const plain = counts.flatMap((count, index) => (count === 0 ? [index] : []));
    expect(plain.length).toBeLessThan(0.05 * counts.length + 8);
    const gaps = plain.slice(1).map((index, at) => index - (plain[at] as number));
    expect(Math.max(...gaps, counts.length - (plain.at(-1) as number))).toBeLessThanOrEqual(97);
  });

  test('single steps that take longer stop no drafts', () => {
    const even: Costs['step'] = (numTokens) => 1 + 0.1 * (numTokens - 1);
    const interrupted: Costs['step'] = (numTokens, index) => (index % 9 === 8 ? 3 : 1) * even(numTokens, index);
    const numSteps = (step: Costs['step']): number => simulate({ step }, () => 0.97, 1000).counts.length;
    expect(numSteps(interrupted)).toBeLessThan(1.2 * numSteps(even));
  });
});

describe('draft length', () => {
  const cheap = { step: steps['further tokens cost a tenth']! };

  test('long drafts where all are right and further tokens cost little', () => {
    const { counts, speed } = simulate(cheap, () => 1, 500);
    expect(counts.at(-1)).toBeGreaterThan(10);
    expect(speed).toBeGreaterThan(4);
    // costs of sizes beyond the known ones are extrapolated
    let maxKnown = 1;
    for (const count of counts.slice(6)) {
      expect(count + 1).toBeLessThanOrEqual(2 * Math.max(2, maxKnown));
      maxKnown = Math.max(maxKnown, count + 1);
    }
  });

  test('shorter drafts at lower rates', () => {
    const meanOf = (rate: number): number => {
      const { counts } = simulate(cheap, () => rate, 2000);
      return counts.reduce((sum, count) => sum + count, 0) / counts.length;
    };
    expect(meanOf(0.9)).toBeGreaterThan(1.5 * meanOf(0.6));
  });

  test('hardly any drafts where none is right, and drafts again when they are', () => {
    const { counts } = simulate(cheap, () => 0, 2000);
    expect(counts.filter((count) => count > 0).length).toBeLessThan(0.2 * counts.length);
    for (const drafting of [undefined, { perToken: 0.1, perTokenBehind: 0 }]) {
      const late = simulate({ ...cheap, drafting } as Costs, (token) => (token < 1000 ? 0 : 1), 1500);
      expect(late.ends.at(-1)! - late.ends[1000]!).toBeLessThan(0.7 * 500 * 10);
    }
  });

  test('a fast model saves time, a slow one is left alone', () => {
    const speedOf = (name: string): number =>
      simulate({ ...cheap, drafting: draftings[name] } as Costs, () => 0.9, 2000).speed;
    expect(speedOf('a fast model')).toBeGreaterThan(1.8);
    expect(speedOf('a model slower than the target')).toBeGreaterThan(0.98);
  });

  test('a slow first draft, whose code and weights are not ready, does not rule drafts out', () => {
    const length = new DraftLength();
    length.noteDrafting(1, 0, 500);
    length.noteDrafting(1, 0, 5);
    length.begin();
    for (let step = 0; step < 3; step++) length.noteStep(noClass, 1, 0, 0, 10);
    expect(length.choose(modelClass, 1, 15)).toBe(1);
  });

  test('no drafts before three plain steps were measured', () => {
    const length = new DraftLength();
    const counts = [0, 1, 2, 3].map(() => {
      const count = length.choose(2, 1, 15);
      length.noteStep(noClass, 1, 0, 0, 10);
      return count;
    });
    expect(counts).toEqual([0, 0, 0, 1]);
  });
});
