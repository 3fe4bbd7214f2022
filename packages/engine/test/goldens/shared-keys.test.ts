/** Gemma 3n and 4: layers that attend to the keys and values of earlier ones, and heads of different sizes. */
import { memorySink, memorySource } from '@winnow/bytes';
import { openGgufFile } from '@winnow/gguf/node';
import type { Backend } from '@winnow/ops';
import { ArgumentError, decode } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { loadEmbeddingModel, loadModel, type LoadOptions, type Model } from '../../src/index.js';
import { useBackends } from '../support/backends.js';
import { archPath, decodeFloats, maxDifference, readJson } from '../support/golden-files.js';
import { greedy, ids } from '../support/prompts.js';

const path = (name: string): string => archPath(name, 'model.gguf') as string;

const backends = useBackends();
const wasm = (): Backend => backends['WebAssembly'] as Backend;

function load(name: string, options: LoadOptions = {}): Promise<Model> {
  return loadModel(path(name), { context: 256, maxSessions: 3, backend: wasm(), ...options });
}

test.each([
  // layers 0 and 2 with heads of 8, 1 and 3 with heads of 16; layers 4 and 5 have none of their own
  ['gemma4', 2 * 4 * (8 + 16 + 8 + 16) + 4],
  // two layers with two heads of 8, one with one of 16
  ['gemma4-moe', 2 * 4 * (16 + 16 + 16) + 4],
])('%s: a token takes memory only in layers with keys of their own', async (name, expected) => {
  await using model = await load(name);
  expect(model.plan.kvBytesPerToken).toBe(expected);
});

test('layers that share keys share their page boxes', async () => {
  const options = { context: 256, maxSessions: 1 };
  const kvBytes = async (attention: string): Promise<number> =>
    (await load('gemma4', { ...options, attention })).plan.kvBytes;
  const dense = await kvBytes('dense');
  const onShared = await kvBytes('decode=page-topk:page=16;dense-first=4');
  const onBoth = await kvBytes('decode=page-topk:page=16;dense-first=2');
  expect(onShared).toBeGreaterThan(dense);
  expect(onBoth).toBe(onShared);
});

test.each(['gemma3n', 'gemma4', 'gemma4-moe'])('%s: sessions continue, are saved, and share prefixes', async (name) => {
  const fresh = async (prompt: number[], maxTokens: number): Promise<readonly number[]> => {
    await using alone = await load(name, { maxSessions: 1 });
    return (await alone.generate(prompt, { ...greedy, maxTokens }).result()).tokens;
  };
  await using model = await load(name);
  using session = model.createSession();
  const first = await session.generate(ids(70), { ...greedy, maxTokens: 10 }).result();
  const longer = [...ids(70), ...first.tokens, 5, 6, 7];
  const sink = memorySink();
  await session.save(sink);
  await using other = await load(name);
  using restored = await other.restoreSession(memorySource(sink.toBytes()));
  const expected = await fresh(longer, 10);
  for (const each of [session, restored]) {
    const { tokens, cachedTokens } = await each.generate(longer, { ...greedy, maxTokens: 10 }).result();
    expect(cachedTokens).toBe(79);
    expect(tokens).toEqual(expected);
  }
  const diverging = [...ids(66), ...ids(20, 11)];
  const shared = await model.generate(diverging, { ...greedy, maxTokens: 10 }).result();
  expect(shared.cachedTokens).toBeGreaterThanOrEqual(64);
  expect(shared.tokens).toEqual(await fresh(diverging, 10));
});

test('eviction by attention mass needs equal numbers of KV heads', async () => {
  const kvCache = { eviction: 'least-attended' } as const;
  await using model = await load('gemma4', { kvCache, context: 64 });
  const options = { ...greedy, maxTokens: 40, overflow: 'evict' } as const;
  expect((await model.generate(ids(50), options).result()).tokens).toHaveLength(40);
  const refused = load('gemma4-moe', { kvCache });
  await expect(refused).rejects.toThrow(ArgumentError);
  await expect(refused).rejects.toThrow('since layers of this model have different numbers of KV heads');
});

test('a rotation of keys is exact within rounding for both sizes of heads', async () => {
  const logprobs = async (rotation: 'none' | 'hadamard'): Promise<Float32Array> => {
    await using model = await load('gemma4', { kvCache: { rotation } });
    return (await model.logprobs(ids(60), { positions: [59] }))[0] as Float32Array;
  };
  expect(maxDifference(await logprobs('hadamard'), await logprobs('none'))).toBeLessThan(1e-4);
});

/** The embedding table, `[320, 16]`. */
async function embeddingTable(name: string): Promise<Float32Array> {
  const file = await openGgufFile(path(name));
  const tensor = file.tensors.get('token_embd.weight');
  const bytes = new Uint8Array(tensor?.sizeBytes ?? 0);
  await tensor?.read(bytes);
  await file.close();
  const values = new Float32Array(320 * 16);
  decode('f16', bytes, values);
  return values;
}

test.each(['gemma3n', 'gemma4', 'gemma4-moe'])(
  '%s: embeddings are the last hidden states of the golden',
  async (name) => {
    const { prompts } = readJson<{ prompts: { tokens: number[]; positions: number[] }[] }>(
      archPath(name, 'golden.json') as string,
    );
    const exact = readJson<{ logprobs: string[][] }>(archPath(name, 'exact.json') as string);
    await using model = await loadEmbeddingModel(path(name), { backend: wasm(), pooling: 'last' });
    const table = await embeddingTable(name);
    const cap = 9;
    for (const index of [1, 2]) {
      const { tokens, positions } = prompts[index] as { tokens: number[]; positions: number[] };
      const [vector = new Float32Array(16)] = await model.embed([tokens], { normalize: false });
      const logits = Array.from({ length: 320 }, (_, id) => {
        const dot = vector.reduce((sum, value, i) => sum + value * (table[16 * id + i] as number), 0);
        return cap * Math.tanh(dot / cap);
      });
      const logSum = Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit), 0));
      const at = positions.indexOf(tokens.length - 1);
      const expected = decodeFloats(exact.logprobs[index]?.[at] as string);
      expect(
        maxDifference(
          Float32Array.from(logits, (logit) => logit - logSum),
          expected,
        ),
      ).toBeLessThan(5e-4);
    }
  },
);
