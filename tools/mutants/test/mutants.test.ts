import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { repoRoot } from '@winnow/test-utils';
import { describe, expect, it } from 'vitest';
import { mutated, packageOf, problemsOf, testsByPackage, type Mutant } from '../src/mutant.ts';
import { mutants } from '../src/mutants.ts';
import { chooseSample } from '../src/sample.ts';

const mutant: Mutant = { file: 'packages/x/src/a.ts', find: 'a < b', replace: 'a <= b', tests: ['src/a.test.ts'] };

describe('the planted defects', () => {
  it('apply to the sources, and name existing tests', () => {
    expect(mutants.flatMap((each) => problemsOf(repoRoot, each))).toEqual([]);
  });

  it('are at least 80 different ones, in every package and application', () => {
    expect(mutants.length).toBeGreaterThanOrEqual(80);
    expect(new Set(mutants.map(({ file, find, replace }) => `${file} ${find} ${replace}`)).size).toBe(mutants.length);
    const places = ['apps', 'packages'].flatMap((folder) =>
      readdirSync(join(repoRoot, folder)).map((name) => `${folder}/${name}`),
    );
    const withCode = places.filter((place) => existsSync(join(repoRoot, place, 'src')));
    const planted = new Set(mutants.map(({ file }) => packageOf(file)));
    expect(withCode.filter((place) => !planted.has(place))).toEqual([]);
    expect(withCode.length).toBeGreaterThan(30);
  });
});

describe('planting', () => {
  it('changes one place, and rejects lines that are missing or not unique', () => {
    expect(mutated('if (a < b) c();', mutant)).toBe('if (a <= b) c();');
    expect(() => mutated('if (b > a) c();', mutant)).toThrow('does not occur');
    expect(() => mutated('a < b; a < b', mutant)).toThrow('more than once');
  });

  it('reports why a defect cannot be planted', () => {
    expect(problemsOf(repoRoot, mutant)).toEqual(['packages/x/src/a.ts: no such file']);
    const own = {
      ...mutant,
      file: 'tools/mutants/src/sample.ts',
      find: 'seed: string',
      replace: 'seed: string',
      tests: [],
    };
    expect(problemsOf(repoRoot, own)).toEqual([
      'tools/mutants/src/sample.ts: must change exactly one line',
      'tools/mutants/src/sample.ts: names no test',
    ]);
  });

  it('finds tests in the package of the file and elsewhere', () => {
    const tests = ['src/a.test.ts', 'test/b.test.ts', 'packages/y/test/c.test.ts'];
    expect([...testsByPackage({ ...mutant, tests })]).toEqual([
      ['packages/x', ['src/a.test.ts', 'test/b.test.ts']],
      ['packages/y', ['test/c.test.ts']],
    ]);
  });
});

describe('a sample', () => {
  it('is determined by the seed, and has no defect twice', () => {
    const first = chooseSample(mutants, 5, 'a');
    expect(chooseSample(mutants, 5, 'a')).toEqual(first);
    expect(chooseSample(mutants, 5, 'b')).not.toEqual(first);
    expect(new Set(first).size).toBe(5);
    expect(chooseSample(mutants, 1000, 'a')).toHaveLength(mutants.length);
  });
});
