/** Traces of FFNs against matrix products of the model's weights in f64. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { afterAll, describe, expect, test } from 'vitest';
import {
  loadEmbeddingModel,
  loadModel,
  type FeedForwardAccess,
  type FeedForwardMatrix,
  type FeedForwardTrace,
} from '../../src/index.js';
import { archPath } from '../support/golden-files.js';
import { tinyLlama } from '../support/tiny-llama.js';

const backends: Record<string, () => Promise<Backend>> = {
  WebAssembly: () => createWasmBackend({ numThreads: 1, activations: 'f32' }),
  reference: async () => createReferenceBackend(),
};

/** The largest difference between traced values and f64 products of x, over neurons `0, 7, 14, ...`. */
async function worstDifference(access: FeedForwardAccess, trace: FeedForwardTrace): Promise<number> {
  const { hiddenDim, ffnDim } = access.layers[trace.layer] as (typeof access.layers)[number];
  let worst = 0;
  const compare = async (matrix: FeedForwardMatrix, traced: Float32Array): Promise<void> => {
    const bias = await access.readBias(trace.layer, matrix);
    for (let f = 0; f < ffnDim; f += 7) {
      const row = await access.readRows(trace.layer, matrix, f, f + 1);
      for (let t = 0; t < trace.numTokens; t++) {
        let sum = bias?.[f] ?? 0;
        for (let i = 0; i < hiddenDim; i++) sum += (row[i] as number) * (trace.x[t * hiddenDim + i] as number);
        worst = Math.max(worst, Math.abs(sum - (traced[t * ffnDim + f] as number)));
      }
    }
  };
  await compare('up', trace.up);
  if (trace.gate !== undefined) await compare('gate', trace.gate);
  return worst;
}

const trace = { feedForward: true };
for (const [name, create] of Object.entries(backends)) {
  describe(`${name} backend`, () => {
    const open: AsyncDisposable[] = [];
    afterAll(async () => {
      for (const model of open) await model[Symbol.asyncDispose]();
    });

    test('of a generative model, in steps', async () => {
      const options = { trace, batchSize: 4, context: 64 };
      const model = await loadModel(await tinyLlama(), { ...options, backend: await create() });
      open.push(model);
      const access = model.feedForward as FeedForwardAccess;
      expect(access.layers.map(({ layer, isGated, ffnDim }) => [layer, isGated, ffnDim])).toEqual([
        [0, true, 48],
        [1, true, 48],
      ]);
      const traces: FeedForwardTrace[] = [];
      await access.trace([1, 2, 3, 4, 5, 6], (layer) => void traces.push(layer));
      expect(traces.map(({ layer, begin, numTokens }) => [layer, begin, numTokens])).toEqual([
        [0, 0, 4],
        [1, 0, 4],
        [0, 4, 2],
        [1, 4, 2],
      ]);
      // f32 sums of 32 products of values around 1
      for (const layer of traces) expect(await worstDifference(access, layer)).toBeLessThan(32 * 16 * 2 ** -24);
      const plain = await loadModel(await tinyLlama(), { context: 64, backend: await create() });
      open.push(plain);
      expect(plain.feedForward).toBeUndefined();
      expect((await model.generate([1, 2, 3], { temperature: 0, maxTokens: 8 }).result()).tokens).toEqual(
        (await plain.generate([1, 2, 3], { temperature: 0, maxTokens: 8 }).result()).tokens,
      );
    });

    test('the hash is that of the file, whatever the load options', async () => {
      const hash = async (options: object, config = {}): Promise<string | undefined> => {
        const model = await loadModel(await tinyLlama(config), { ...options, trace, context: 64 });
        open.push(model);
        return model.feedForward?.weightsHash;
      };
      expect(await hash({ quantize: 'q8_0' })).toBe(await hash({}));
    });

    const bert = archPath('bert-mean', 'model.gguf');
    test.skipIf(bert === undefined)(
      `of an encoder with biases${bert ? '' : ' (needs ../shared/data/goldens)'}`,
      async () => {
        const model = await loadEmbeddingModel(bert as string, { trace, backend: await create() });
        open.push(model);
        const access = model.feedForward as FeedForwardAccess;
        const traces: FeedForwardTrace[] = [];
        await access.trace(model.encodeText('one two'), (layer) => void traces.push(layer));
        expect(traces.length).toBe(model.config.numLayers);
        for (const layer of traces) {
          expect(layer.gate).toBeUndefined();
          expect(await worstDifference(access, layer)).toBeLessThan(1e-4);
        }
        expect(access.layers[0]?.biases).toEqual(['up', 'down']);
      },
    );
  });
}
