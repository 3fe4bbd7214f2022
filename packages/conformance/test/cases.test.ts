/** The cases themselves: complete, reproducible, with bounds that mean something, in memory laid out as promised. */
import { readFileSync } from 'node:fs';
import { opSpecs, validateProgram, weightDTypes } from '@winnow/ops';
import { sampled, testCoverage } from '@winnow/test-utils';
import { describe, expect, it } from 'vitest';
import { caseList, listFile } from '../codegen/case-list.js';
import { normalDistribution } from '../src/activation-truth.js';
import {
  buildKernelProgram,
  compareClose,
  float32Arithmetic,
  kernelCases,
  rngOf,
  selectCases,
  type KernelCase,
} from '../src/index.js';
import { hasDynamicSizes, canaryNeighbors } from '../src/runs/kernel-program.js';
import { numbersOf, randomTensor } from '../src/values.js';

const arithmetic = float32Arithmetic();

describe('the case lists', () => {
  it('include every file of the folder (pnpm codegen in packages/backend-wasm writes them)', () => {
    expect(readFileSync(listFile, 'utf8')).toBe(caseList());
  });

  it('cover every op with unique names', () => {
    expect(Object.keys(kernelCases)).toEqual(opSpecs.map(({ name }) => name).toSorted());
    for (const [op, cases] of Object.entries(kernelCases)) {
      expect(cases.length, op).toBeGreaterThan(10);
      expect(new Set(cases.map(({ name }) => name)).size, op).toBe(cases.length);
      expect(cases.every((kernelCase) => kernelCase.op === op)).toBe(true);
    }
    for (const op of ['matmul', 'embedding-lookup', 'expert-matmul', 'sparse-matmul', 'sparse-combine']) {
      const dtypes = new Set(kernelCases[op].flatMap((kernelCase) => Object.values(kernelCase.dtypes)));
      expect(dtypes).toEqual(new Set(weightDTypes));
    }
  });

  it.each(Object.entries(kernelCases))('of %s are reproducible', (op, cases) => {
    for (const kernelCase of cases.slice(0, 5)) {
      const create = (): unknown => kernelCase.create(rngOf(`${op} ${kernelCase.name}`), arithmetic);
      expect(create()).toEqual(create());
    }
  });

  it.each(Object.entries(kernelCases))(
    'of %s are valid programs with canaries on both sides of outputs, and bounds far below the values',
    (_op, cases) => {
      // the suite builds the program of every case; here it is enough to see each kind of them
      expect(sampled(selectCases(cases, testCoverage), 10).flatMap(defectsOf)).toEqual([]);
    },
  );
});

/** What is wrong with a case itself, one line each. */
function defectsOf(kernelCase: KernelCase): string[] {
  const { op, name, attributes } = kernelCase;
  const data = kernelCase.create(rngOf(`${op} ${name}`), arithmetic);
  const outputs = Object.keys(data.expected).filter((output) => data.updated?.[output] === undefined);
  const defects: string[] = [];
  for (const isDynamic of hasDynamicSizes(data) ? [false, true] : [false]) {
    const kernelProgram = buildKernelProgram(op, attributes, data, isDynamic, 2);
    validateProgram(kernelProgram.program);
    for (const output of outputs) {
      const { before, after } = canaryNeighbors(kernelProgram, output);
      if (!before || !after) defects.push(`${name}: ${output} has no canary ${before ? 'after' : 'before'} it`);
    }
  }
  // the deviation of one value from its mean is 0, and all of it is rounding
  if (op === 'layer-norm' && / x 1(,|$)/.test(name)) return defects;
  for (const [output, expected] of Object.entries(data.expected)) {
    const at = expected.kind === 'close' ? indexOfWideBound(expected.values, expected.bounds) : -1;
    if (at >= 0) defects.push(`${name}: the bound of ${output} at ${at} is not far below its values`);
  }
  return defects;
}

function indexOfWideBound(values: Float64Array, bounds: Float64Array): number {
  const largest = values.reduce((max, v) => (Number.isFinite(v) ? Math.max(max, Math.abs(v)) : max), 0);
  return bounds.findIndex((bound, i) => Number.isFinite(values[i]) && !(bound <= largest * 0.05 + 2 ** -100));
}

describe('the comparison', () => {
  it('checks NaN, infinities and bounds in this order, and names the worst index', () => {
    expect(compareClose([1, NaN, Infinity, -0], [1, NaN, Infinity, 0], [0, 0, 0, 0])).toBeUndefined();
    expect(compareClose([1.5], [1], [0.5])).toBeUndefined();
    expect(compareClose([Infinity], [1e39], [0])).toBeUndefined();
    expect(compareClose([1, 1.25, 3], [1, 1, 1], [0.1, 0.1, 0.1])).toContain(
      '2 of 3 values wrong, worst at index 2: 3 instead of 1, 20',
    );
    for (const [found, expected] of [
      [NaN, 1],
      [1, NaN],
      [Infinity, -Infinity],
      [Infinity, 1],
      [1, Infinity],
      [0, NaN],
    ]) {
      expect(compareClose([found], [expected], [1e9]), `${found} for ${expected}`).toContain('1 of 1');
    }
    expect(compareClose([1 + 2 ** -20], [1], [0])).toContain('Infinity times the bound 0');
    expect(compareClose([2], [1], [NaN])).toContain('1 of 1');
    expect(compareClose([1], [1, 2], [1, 1])).toContain('1 values instead of 2');
  });
});

describe('the values', () => {
  it.each(weightDTypes)('of random %s tensors are finite, different and near 1', (dtype) => {
    const values = numbersOf(randomTensor(rngOf(dtype), dtype, [4, 256]));
    const largest = values.reduce((max, v) => Math.max(max, Math.abs(v)), 0);
    expect(largest).toBeGreaterThan(2 ** -8);
    expect(largest).toBeLessThan(256);
    expect(new Set(values).size).toBeGreaterThan(8);
  });

  it('of the normal distribution agree with tables', () => {
    // Abramowitz and Stegun, table 26.1
    for (const [x, expected] of [
      [0, 0.5],
      [1, 0.841344746068543],
      [2, 0.977249868051821],
      [-3, 0.00134989803163],
    ]) {
      expect(normalDistribution(x)).toBeCloseTo(expected, 11);
    }
  });
});
