import { createWasmBackend } from '@winnow/backend-wasm';
import type { Backend } from '@winnow/ops';
import type { DType } from '@winnow/tensor';
import { expect, it } from 'vitest';
import { maxActiveOf } from './engine-options.js';

const types: readonly DType[] = ['f32', 'q4_0', 'q6_K'];

async function ratiosOf(flags: Parameters<typeof maxActiveOf>[0]): Promise<number[]> {
  const ratio = await maxActiveOf(flags);
  return types.map((dtype) => (typeof ratio === 'number' ? ratio : ratio(dtype, 'separate')));
}

const ratiosOn = ({ breakEvenRatio }: Backend): number[] => types.map((dtype) => breakEvenRatio(dtype, 'separate'));

it('takes break-even ratios from the backend that runs the model', async () => {
  const flags = [
    { native: 'off', choice: false },
    { native: 'auto', choice: 'auto' },
  ] as const;
  for (const { native, choice } of flags) {
    const backend = await createWasmBackend({ native: choice });
    expect(await ratiosOf({ native })).toEqual(ratiosOn(backend));
    await backend.dispose();
  }
  expect(await ratiosOf({ backend: 'reference' })).toEqual([1, 1, 1]);
  expect(await ratiosOf({ backend: 'reference', sparsityMaxActive: 0.4 })).toEqual([0.4, 0.4, 0.4]);
});
