/** A platform without an addon. */
import { expect, it, vi } from 'vitest';
import { openNative, platformName } from '../src/index.node.js';

vi.mock('../src/find.node.js', async (original) => ({
  ...(await original<typeof import('../src/find.node.js')>()),
  findAddon: () => undefined,
}));

it('an addon that is missing is an error only where one is required, which says how to get it', async () => {
  const name = platformName();
  const refusal = `there is no addon for ${name}: install @winnow/native-${name}, or build one in the repository with npm run native`;
  expect(await openNative('auto')).toEqual({});
  expect(await openNative(true)).toEqual({ refusal });
  expect(await openNative('avx2')).toEqual({ refusal });
});
