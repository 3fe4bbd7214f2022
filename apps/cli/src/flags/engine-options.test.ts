import { breakEvenRatio } from '@winnow/backend-wasm';
import type { DType } from '@winnow/tensor';
import { expect, it } from 'vitest';
import { maxActiveOf } from './engine-options.js';

it('takes break-even ratios from the backend that runs the model', () => {
  const ratios = (flags: Parameters<typeof maxActiveOf>[0]): unknown[] =>
    (['f32', 'q4_0', 'q6_K'] as const).map((dtype: DType) => {
      const ratio = maxActiveOf(flags);
      return typeof ratio === 'number' ? ratio : ratio(dtype, 'separate');
    });
  expect(ratios({})).toEqual((['f32', 'q4_0', 'q6_K'] as const).map((dtype) => breakEvenRatio(dtype, 'separate')));
  expect(ratios({ backend: 'reference' })).toEqual([1, 1, 1]);
  expect(ratios({ backend: 'reference', sparsityMaxActive: 0.4 })).toEqual([0.4, 0.4, 0.4]);
});
