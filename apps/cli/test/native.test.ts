/** Whole models on native kernels: they generate what WebAssembly generates. */
import { demoModelUrl } from '@winnow/demo-model';
import { loadModel, type LoadOptions } from '@winnow/engine';
import { openNative } from '@winnow/native/node';
import { describe, expect, test } from 'vitest';

const level = (await openNative(true)).kernels?.level;

async function generate(
  options: LoadOptions,
): Promise<{ readonly backend: string; readonly tokens: readonly number[] }> {
  await using model = await loadModel(demoModelUrl, { context: 512, threads: 2, ...options });
  const { tokens } = await model
    .generate('The captain looked at the sea and said,', { temperature: 0, maxTokens: 200 })
    .result();
  return { backend: model.backend, tokens };
}

const variants: Readonly<Record<string, LoadOptions>> = {
  'exact activations': { activations: 'f32' },
  '8-bit weights and activations': { quantize: 'q8_0' },
  'sparse attention, exact activations': {
    activations: 'f32',
    attention: 'prefill=subquadratic:window=256;decode=page-topk:budget=16',
  },
};

describe.skipIf(level === undefined)('200 greedy tokens', () => {
  test.each(Object.entries(variants))('%s', async (_, options) => {
    const wasm = await generate({ ...options, native: false });
    const native = await generate({ ...options, native: true });
    expect([wasm.backend, native.backend]).toEqual(['wasm', `wasm+${level}`]);
    expect(native.tokens).toEqual(wasm.tokens);
  });
});
