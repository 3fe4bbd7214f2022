/** Attention policies of whole models at each level of native kernels, against WebAssembly. */
import { testCoverage } from '@winnow/test-utils';
import { afterAll, describe, expect, test } from 'vitest';
import { bound, disposeBackends, on, rms, rowsOf, worstOf, type Case } from '../support/native-models.js';
import { usableLevels } from '../support/native.js';

/**
 * With codes of activations or caches: the largest ratio of the difference of both sides to the error of the codes, both as root
 * mean squares. Where a value is within the rounding of f32 sums of the boundary of a code, the two sides choose different codes.
 * Sides with unrelated codes would have a ratio of the square root of 2. With the same codes but for one of 2, errors are shared
 * but for half of their variance, and the ratio is 1.
 */
const maxCodeErrors = 1;

const policies: readonly (readonly [attention: string, op: string])[] = [
  ['dense', 'attention'],
  ['streaming:window=64,sinks=4', 'streaming-attention'],
  ['decode=page-topk:budget=2,window=20', 'page-topk-attention'],
  ['decode=page-topk:epsilon=0.05,page=2,window=16', 'page-topk-attention'],
  ['decode=sparq:rank=16,topk=64,mean=true', 'sparq-attention'],
  ['prefill=subquadratic:window=32', 'subquadratic-attention'],
  ['prefill=h2o:chunk=32,local=8,heavy=8,delta=16', 'h2o-attention'],
];
const caches = ['f16', 'q8_0', 'q4_0', 'f32'] as const;
const cases = policies.flatMap(([attention, op], index) =>
  (['f32', 'int8'] as const).map((activations) => ({ attention, op, activations, cache: caches[index % 4]! })),
);

const levels = await usableLevels();
afterAll(disposeBackends);

/** Levels take turns with policies, each with one kind of activations. */
function casesOf(level: number): typeof cases {
  if (testCoverage === 'full') return cases;
  return cases.filter((_, index) => {
    const policy = index >> 1;
    return policy % levels.length === level && index % 2 === (policy >> 1) % 2;
  });
}

test.skipIf(levels.length === 0)('each policy has a level (needs native kernels)', () => {
  const taken = levels.flatMap((_, level) => casesOf(level).map(({ attention }) => attention));
  expect(new Set(taken).size).toBe(policies.length);
});

describe.each(levels)('%s', (level) => {
  test.each(casesOf(levels.indexOf(level)))(
    '$attention, activations in $activations, cache in $cache',
    async ({ attention, op, activations, cache }) => {
      const exactCase: Case = { attention, activations: 'f32', kvCache: { dtype: 'f32' }, ops: [op] };
      const exact = await on(false, { ...exactCase, quantize: 'q8_0' }, rowsOf);
      const rounded: Case = { ...exactCase, quantize: 'q8_0', activations, kvCache: { dtype: cache } };
      const wasm = await on(false, rounded, rowsOf);
      const found = await on(level, rounded, rowsOf);
      if (activations === 'f32' && cache === 'f32') expect(worstOf(found, wasm)).toBeLessThan(bound);
      else expect(rms(found, wasm)).toBeLessThan(maxCodeErrors * rms(wasm, exact));
      const native = await on(level, exactCase, rowsOf);
      expect(worstOf(native, await on(false, exactCase, rowsOf))).toBeLessThan(bound);
    },
  );
});
