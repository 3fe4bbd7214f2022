import { describe, expect, it } from 'vitest';
import { assignGroups, assignVariants, kernelCases, selectCases } from '../src/index.js';
import { inTurn } from '../src/suite/coverage.js';

const lengths = [0, 1, 2, 3, 17];
const cases = ['f32', 'q8_0'].flatMap((dtype) =>
  lengths.flatMap((length) => ['', ', bias'].map((bias) => ({ name: `${dtype}, 3 x ${length}${bias}` }))),
);

describe('the selection of cases', () => {
  it('contains every case for full coverage', () => {
    expect(selectCases(cases, 'full')).toBe(cases);
  });

  it('contains every value, and every dtype with each kind of length and with a bias, in the order of the list', () => {
    const names = selectCases(cases, 'pairwise').map(({ name }) => name);
    expect(names).toEqual(cases.map(({ name }) => name).filter((name) => names.includes(name)));
    for (const length of lengths) expect(names.some((name) => name.includes(` x ${length}`))).toBe(true);
    for (const dtype of ['f32', 'q8_0']) {
      const ofDtype = names.filter((name) => name.startsWith(dtype)).join('\n');
      for (const kind of [/x 0/, /x 1(,|$)/m, /x [23]/, /x 17/, /bias/, /\d$/m]) expect(ofDtype).toMatch(kind);
    }
    for (const kind of [/x 0/, /x 1(,|$)/, /x [23]/, /x 17/]) {
      expect(names.some((name) => kind.test(name) && name.endsWith('bias'))).toBe(true);
    }
    expect(names.length).toBeLessThan(cases.length);
  });

  it.each(Object.entries(kernelCases))('of %s contains every dtype', (_op, ofOp) => {
    for (const tensor of new Set(ofOp.flatMap(({ dtypes }) => Object.keys(dtypes)))) {
      const found = (list: typeof ofOp): Set<unknown> => new Set(list.map(({ dtypes }) => dtypes[tensor]));
      expect(found(selectCases(ofOp, 'pairwise'))).toEqual(found(ofOp));
    }
  });
});

describe('the variants of a case', () => {
  const variants = ['1 thread', '2 threads', '4 threads'];

  it('are all of them for full coverage', () => {
    expect([...assignVariants(cases, variants, 'full').values()]).toEqual(cases.map(() => variants));
  });

  it('are at least one, and every kind of value is combined with every variant', () => {
    const assigned = assignVariants(cases, variants, 'pairwise');
    expect([...assigned.keys()]).toEqual(cases);
    const runs = [...assigned].flatMap(([{ name }, own]) => own.map((variant) => `${name} on ${variant}`)).join('\n');
    for (const own of assigned.values()) expect(own.length).toBeGreaterThan(0);
    for (const variant of variants) {
      for (const kind of ['f32', 'q8_0', ' x 0', ' x 1(?=,| )', ' x [23]', ' x 17', 'bias']) {
        expect(runs).toMatch(new RegExp(`${kind}.* on ${variant}$`, 'm'));
      }
    }
    expect(runs.split('\n').length).toBeLessThan(2 * cases.length);
  });

  it('share the kinds of sizes of a case: each runs on one of them, and each variant runs one', () => {
    const sizes = ['fixed', 'dynamic'];
    expect(inTurn(sizes, 1, 5, 'pairwise')).toEqual([sizes]);
    expect(inTurn(sizes, 2, 0, 'pairwise')).toEqual([['fixed'], ['dynamic']]);
    expect(inTurn(sizes, 3, 1, 'pairwise')).toEqual([['dynamic'], ['fixed'], ['dynamic']]);
    expect(inTurn(['fixed'], 2, 1, 'pairwise')).toEqual([['fixed'], ['fixed']]);
    expect(inTurn(sizes, 2, 0, 'full')).toEqual([sizes, sizes]);
  });

  it('rotate where kinds do not decide', () => {
    const alike = Array.from({ length: 9 }, (_, index) => ({ name: `graph ${10 + index}` }));
    const counts = new Map(variants.map((variant) => [variant, 0]));
    for (const own of assignVariants(alike, variants, 'pairwise').values()) {
      for (const variant of own) counts.set(variant, (counts.get(variant) as number) + 1);
    }
    expect([...counts.values()]).toEqual([3, 3, 3]);
  });
});

describe('groups of variants', () => {
  it('take turns, and each kind of value needs one of each group', () => {
    const groups = [['1 thread', '1 worker'], ['2 threads']];
    const assigned = assignGroups(cases, groups, 'pairwise');
    expect([...assigned.keys()]).toEqual(cases);
    const runs = [...assigned].flatMap(([{ name }, own]) => own.map((variant) => `${name} on ${variant}`)).join('\n');
    for (const kind of ['f32', 'q8_0', ' x 0', ' x 1(?=,| )', ' x [23]', ' x 17', 'bias']) {
      expect(runs).toMatch(new RegExp(`${kind}.* on 1 (thread|worker)$`, 'm'));
      expect(runs).toMatch(new RegExp(`${kind}.* on 2 threads$`, 'm'));
    }
    const numRuns = (variant: string): number =>
      runs.split('\n').filter((run) => run.endsWith(` on ${variant}`)).length;
    expect(Math.abs(numRuns('1 thread') - numRuns('1 worker'))).toBeLessThanOrEqual(1);
    expect([...assignGroups(cases, groups, 'full').values()]).toEqual(cases.map(() => groups.flat()));
  });

  it('may be in several groups: each kind of value needs one of each, in fewer runs than of each pair', () => {
    const all = ['simd alone', 'simd together', 'relaxed alone', 'relaxed together'];
    const groups = ['simd', 'relaxed', 'alone', 'together'].map((word) => all.filter((name) => name.includes(word)));
    const assigned = assignGroups(cases, groups, 'pairwise');
    const runs = [...assigned].flatMap(([{ name }, own]) => own.map((variant) => `${name} on ${variant}`)).join('\n');
    for (const word of ['simd', 'relaxed', 'alone', 'together']) {
      for (const kind of ['f32', 'q8_0', ' x 0', ' x 1(?=,| )', ' x [23]', ' x 17', 'bias']) {
        expect(runs).toMatch(new RegExp(`${kind}.* on (?:.* )?${word}(?: .*)?$`, 'm'));
      }
    }
    const numRuns = (assignment: ReadonlyMap<unknown, readonly string[]>): number =>
      [...assignment.values()].flat().length;
    const many = selectCases(kernelCases['attention'] ?? [], 'pairwise');
    expect(numRuns(assignGroups(many, groups, 'pairwise'))).toBeLessThan(
      numRuns(assignVariants(many, all, 'pairwise')) * 0.8,
    );
    for (const variant of all) expect(runs).toContain(` on ${variant}`);
    expect([...assignGroups(cases, groups, 'full').values()]).toEqual(cases.map(() => all));
  });
});
