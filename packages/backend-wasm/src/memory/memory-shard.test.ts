import { expect, test } from 'vitest';
import { createHost } from '../host/host.node.js';
import { compileKernels } from '../host/web-assembly.js';
import { controlWords, pageBytes } from '../kernels/layout.generated.js';
import { createShard } from './memory-shard.js';

/** How often threads of a memory poll before they sleep. */
async function spinsOf(numThreads: number, hostSpins?: { spins: number }): Promise<number | undefined> {
  const host = { ...createHost(), availableParallelism: 4, ...hostSpins };
  const options = { host, isShared: false, numThreads, usesMessages: false, minWork: 0, int8Dot: 'generic' as const };
  const kernels = { module: await compileKernels('simd', false) };
  const { heap, runner } = createShard(16 * pageBytes, kernels, options, () => undefined);
  await runner.dispose();
  return heap.words(controlWords.spins, 1)[0];
}

test('threads poll as often as the host says, and rarely when there are more of them than cores', async () => {
  const usual = (await spinsOf(4)) as number;
  const rare = (await spinsOf(5)) as number;
  expect(rare).toBeLessThan(usual / 10);
  expect(await spinsOf(4, { spins: 17_000 })).toBe(17_000);
  expect(await spinsOf(5, { spins: 17_000 })).toBe(rare);
});

test('Bun has an engine that polls slowly', () => {
  expect(createHost({ bun: '1.4.5' }).spins).toBeLessThan(100_000);
  expect(createHost({}).spins).toBeUndefined();
});
