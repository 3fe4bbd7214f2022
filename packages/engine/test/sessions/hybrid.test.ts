/** Sessions of models with recurrent states, which cannot be truncated: the state of a prefix comes from a snapshot. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Backend } from '@winnow/ops';
import { loadModel, type Model } from '../../src/index.js';
import { useBackends } from '../support/backends.js';
import { archPath, maxDifference } from '../support/golden-files.js';
import { greedy, ids } from '../support/prompts.js';

const backends = useBackends();
const wasm = (): Backend => backends['WebAssembly'] as Backend;

/** The tokens of a new session. */
async function fresh(path: string | undefined, prompt: number[], maxTokens: number): Promise<readonly number[]> {
  await using alone = await loadModel(path as string, { context: 256, maxSessions: 1, backend: wasm() });
  return (await alone.generate(prompt, { ...greedy, maxTokens }).result()).tokens;
}

const names = [
  'lfm2',
  'lfm2moe',
  'qwen35',
  'qwen35moe',
  'qwen3next',
  'granitehybrid',
  'falcon-h1',
  'mamba',
  'mamba2-groups',
];

describe.each(names)('%s', (name) => {
  const path = archPath(name, 'model.gguf');
  const missing = path === undefined ? ' (needs ../shared/data/goldens)' : '';
  let model: Model;
  beforeAll(async () => {
    if (path === undefined) return;
    model = await loadModel(path, { context: 256, maxSessions: 3, backend: wasm(), kvCache: { prefixSharing: false } });
  });
  afterAll(() => model?.dispose());

  test.skipIf(path === undefined)(`a longer prompt computes only its new tokens${missing}`, async () => {
    using session = model.createSession();
    const first = await session.generate(ids(50), { ...greedy, maxTokens: 10 }).result();
    const longer = [...ids(50), ...first.tokens, 5, 6, 7];
    const second = await session.generate(longer, { ...greedy, maxTokens: 10 }).result();
    expect(second.cachedTokens).toBe(59);
    expect(second.tokens).toEqual(await fresh(path, longer, 10));
  });

  test.skipIf(path === undefined)(`a prompt that diverges in the middle, twice${missing}`, async () => {
    using session = model.createSession();
    await session.generate(ids(100), { ...greedy, maxTokens: 5 }).result();
    const other = [...ids(70), ...ids(20, 11)];
    const expected = await fresh(path, other, 10);
    for (let round = 0; round < 2; round++) {
      const result = await session.generate(other, { ...greedy, maxTokens: 10 }).result();
      expect(result.cachedTokens).toBeLessThanOrEqual(70 + 19 * round);
      expect(result.tokens).toEqual(expected);
    }
    // there is no snapshot before the first whole block
    const early = [...ids(5), 9, 9, 9];
    expect((await session.generate(early, { ...greedy, maxTokens: 8 }).result()).tokens).toEqual(
      await fresh(path, early, 8),
    );
  });

  test.skipIf(path === undefined)(`concurrent sessions${missing}`, async () => {
    const prompts = [ids(80, 3), ids(33, 11), ids(65, 5)];
    const expected = [];
    for (const prompt of prompts) expected.push(await fresh(path, prompt, 12));
    const found = await Promise.all(
      prompts.map((prompt) => model.generate(prompt, { ...greedy, maxTokens: 12 }).result()),
    );
    expect(found.map(({ tokens }) => tokens)).toEqual(expected);
  });

  test.skipIf(path === undefined)(`a session after an abort${missing}`, async () => {
    using session = model.createSession();
    for await (const _token of session.generate(ids(40), { ...greedy, maxTokens: 9 })) break;
    const expected = await fresh(path, ids(45), 9);
    expect((await session.generate(ids(45), { ...greedy, maxTokens: 9 }).result()).tokens).toEqual(expected);
    const controller = new AbortController();
    controller.abort();
    const aborted = session.generate(ids(90), { ...greedy, signal: controller.signal });
    await expect(aborted.result()).rejects.toThrow();
    expect((await session.generate(ids(45), { ...greedy, maxTokens: 9 }).result()).tokens).toEqual(expected);
  });
});

describe.each(names)('%s', (name) => {
  const path = archPath(name, 'model.gguf');
  const missing = path === undefined ? ' (needs ../shared/data/goldens)' : '';

  test.skipIf(path === undefined)(`prefixes of other sessions${missing}`, async () => {
    const sharing = await loadModel(path as string, { context: 256, maxSessions: 3, backend: wasm() });
    const prompt = ids(150);
    const other = [...ids(140), 1, 2, 3];
    await sharing.generate(prompt, { ...greedy, maxTokens: 4 }).result();
    const result = await sharing.generate(other, { ...greedy, maxTokens: 10 }).result();
    expect(result.cachedTokens).toBe(128); // two whole blocks with a snapshot
    expect(result.tokens).toEqual(await fresh(path, other, 10));
    await sharing.dispose();
  });
});

describe.each(['granitehybrid', 'falcon-h1', 'qwen3next'])('page-topk on %s', (name) => {
  const tokens = ids(90);
  const rowOf = async (attention: string): Promise<Float32Array> => {
    const location = archPath(name, 'model.gguf') as string;
    await using model = await loadModel(location, { context: 128, maxSessions: 1, backend: wasm(), attention });
    const [row] = await model.logprobs(tokens, { positions: [89], phase: 'decode' });
    return row as Float32Array;
  };

  test('all pages give the result of dense attention, and fewer another one', async () => {
    const dense = await rowOf('dense');
    expect(maxDifference(await rowOf('decode=page-topk:budget=all,page=16'), dense)).toBeLessThan(1e-4);
    const sparse = await rowOf('decode=page-topk:budget=1,page=8,window=8,sinks=1');
    expect(maxDifference(sparse, dense)).toBeGreaterThan(1e-3);
  });
});

const lfm2 = archPath('lfm2', 'model.gguf');
test.skipIf(lfm2 === undefined)(
  `only attention layers take memory per token${lfm2 === undefined ? ' (needs ../shared/data/goldens)' : ''}`,
  async () => {
    const model = await loadModel(lfm2 as string, { context: 64, maxSessions: 1, backend: wasm() });
    // one attention layer of four, two heads of 16, keys and values in f32; one position for all layers
    expect(model.plan.kvBytesPerToken).toBe(2 * 2 * 16 * 4 + 4);
    await model.dispose();
  },
);
