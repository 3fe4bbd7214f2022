/** Rotated keys (Hadamard) in the KV cache. */
import { readFile } from 'node:fs/promises';
import { memorySink, memorySource } from '@winnow/bytes';
import { demoModelUrl } from '@winnow/demo-model';
import { memoryFolder, type HubFiles } from '@winnow/hub';
import { ArgumentError, decode, encode } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import { loadModel, type LoadOptions, type ModelLocation } from '../../src/index.js';
import { archPath } from '../support/golden-files.js';
import { tinyLlama } from '../support/tiny-llama.js';
import { tinyFolder } from '../support/tiny-model.js';

const ids = (length: number, step = 7): number[] => Array.from({ length }, (_, index) => (index * step) % 20);

const sentences = [
  'The wind blew over the hills, and the rain fell on the roof of the old house by the river. ',
  'Nobody spoke for a long time, and the fire in the room burned low. ',
  'At last the captain rose and went to the window, where the ships lay at anchor in the bay. ',
  '"It is late," said the woman, "and the road is long." ',
];
const text = sentences.join('').repeat(2);

async function rowsOf(options: LoadOptions = {}, location: ModelLocation = demoModelUrl): Promise<Float32Array[]> {
  await using model = await loadModel(location, { context: 512, maxSessions: 1, ...options });
  const tokens = model.encodePrompt(text);
  return await model.logprobs(tokens, { positions: [...tokens.keys()] });
}

/** Mean KL divergence from the first to the second, in nats. */
function divergence(exact: readonly Float32Array[], rows: readonly Float32Array[]): number {
  let sum = 0;
  for (const [index, row] of exact.entries()) {
    for (const [id, p] of row.entries()) sum += Math.exp(p) * (p - ((rows[index] as Float32Array)[id] as number));
  }
  return sum / exact.length;
}

/** The demo model with one key channel, and its RoPE partner, scaled by 16. */
async function withOutliers(): Promise<HubFiles> {
  const files: Record<string, Uint8Array> = {};
  for (const name of ['config.json', 'tokenizer.json', 'tokenizer_config.json', 'model.safetensors']) {
    files[name] = await readFile(new URL(name, demoModelUrl));
  }
  const bytes = files['model.safetensors'] as Uint8Array;
  const headerBytes = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + headerBytes))) as Record<
    string,
    { dtype: string; shape: [number, number]; data_offsets: [number, number] }
  >;
  for (const [name, { dtype, shape, data_offsets: offsets }] of Object.entries(header)) {
    const factor = name.endsWith('k_proj.weight') ? 16 : name.endsWith('q_proj.weight') ? 1 / 16 : 1;
    if (factor === 1) continue;
    expect(dtype).toBe('F16');
    const [numRows, numColumns] = shape;
    const own = bytes.subarray(8 + headerBytes + offsets[0], 8 + headerBytes + offsets[1]);
    const values = new Float32Array(numRows * numColumns);
    decode('f16', own, values);
    for (let row = 0; row < numRows; row++) {
      if (row % 16 !== 3) continue; // heads of 32, in which RoPE rotates channels 3 and 19 together
      for (let i = row * numColumns; i < (row + 1) * numColumns; i++) values[i] = (values[i] as number) * factor;
    }
    encode('f16', values, own);
  }
  return memoryFolder(files);
}

describe('rotated keys', () => {
  test('rotation changes nothing but the rounding', async () => {
    expect(divergence(await rowsOf(), await rowsOf({ kvCache: { rotation: 'hadamard' } }))).toBeLessThan(1e-6);
  });

  test('with outlier channels in the keys, 4-bit storage loses much less', async () => {
    const exact = await rowsOf({}, await withOutliers());
    // queries are scaled inversely, so the model is the same except for rounding
    expect(divergence(await rowsOf(), exact)).toBeLessThan(1e-4);
    const dtype = { keys: 'q4_0', values: 'f32' } as const;
    const plain = divergence(exact, await rowsOf({ kvCache: { dtype } }, await withOutliers()));
    const rotated = divergence(exact, await rowsOf({ kvCache: { dtype, rotation: 'hadamard' } }, await withOutliers()));
    // a block's scale follows its largest value; spread over 32 channels the outlier is only a few times as large
    expect(rotated).toBeLessThan(plain / 2);
  });
});

describe('rotated keys elsewhere', () => {
  test.each(['gemma3', 'qwen3', 'gpt2'])('%s generates the same tokens', async (name) => {
    const path = archPath(name, 'model.gguf') ?? (archPath(name, 'hf') as string);
    const tokens: (readonly number[])[] = [];
    for (const rotation of ['none', 'hadamard'] as const) {
      await using model = await loadModel(path, { context: 128, maxSessions: 1, kvCache: { rotation } });
      const attention = await model.generate(ids(20), { temperature: 0, ignoreEos: true, maxTokens: 12 }).result();
      tokens.push(attention.tokens);
    }
    expect(tokens[1]).toEqual(tokens[0]);
  });

  test('remapped sinks are rotated, too', async () => {
    const options = { context: 256, maxSessions: 1, attention: 'streaming:window=24,sinks=4' } as const;
    const results: (readonly number[])[] = [];
    for (const rotation of ['none', 'hadamard'] as const) {
      await using model = await loadModel(demoModelUrl, { ...options, kvCache: { rotation } });
      const { tokens } = await model
        .generate('The old man', { temperature: 0, maxTokens: 60, ignoreEos: true })
        .result();
      results.push(tokens);
    }
    expect(results[1]).toEqual(results[0]);
  });

  test('pages outside the pool are rotated, too', async () => {
    const tiny = await tinyLlama();
    const kv = { budget: 6 * 64 * 1028, offload: { memory: 2 ** 22 } };
    const results: (readonly number[])[] = [];
    for (const kvCache of [{}, { rotation: 'hadamard' }, { rotation: 'hadamard', ...kv }] as const) {
      await using model = await loadModel(tiny, { context: 4096, maxSessions: 1, kvCache });
      const { tokens } = await model.generate(ids(700), { temperature: 0, maxTokens: 20, ignoreEos: true }).result();
      results.push(tokens);
      expect((model.metrics().tiers?.numDemotedTokens ?? 0) > 0).toBe('budget' in kvCache);
    }
    expect(results[1]).toEqual(results[0]);
    expect(results[2]).toEqual(results[0]);
  });

  test('a session saved with another rotation is rejected, and so are unknown rotations', async () => {
    await using model = await loadModel(await tinyFolder(), { kvCache: { rotation: 'hadamard' }, context: 64 });
    using session = model.createSession();
    await session.generate(ids(9), { maxTokens: 3, ignoreEos: true }).result();
    const sink = memorySink();
    await session.save(sink);
    await using other = await loadModel(await tinyFolder(), { context: 64 });
    await expect(other.restoreSession(memorySource(sink.toBytes().slice()))).rejects.toThrow(/kvRotation/);
    await expect(loadModel(await tinyFolder(), { kvCache: { rotation: 'givens' as never } })).rejects.toThrow(
      ArgumentError,
    );
  });
});
