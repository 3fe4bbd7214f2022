/** A platform without an addon. */
import { expect, it, onTestFinished, vi } from 'vitest';

const find = '../src/find.node.js';

it('an addon that is missing is an error only where one is required, which says how to get it', async () => {
  // tests of a worker share modules
  vi.resetModules();
  vi.doMock(find, async (original) => ({ ...(await original<object>()), findAddon: () => undefined }));
  onTestFinished(() => {
    vi.doUnmock(find);
    vi.resetModules();
  });
  const { openNative, platformName } = await import('../src/index.node.js');
  const name = platformName();
  const refusal = `there is no addon for ${name}: install @winnow/native-${name}, or build one in the repository with npm run native`;
  expect(await openNative('auto')).toEqual({});
  expect(await openNative(true)).toEqual({ refusal });
  expect(await openNative('avx2')).toEqual({ refusal });
});
