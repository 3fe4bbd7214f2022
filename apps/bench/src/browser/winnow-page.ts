/** The page with the engine and its WebAssembly backend. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { loadModel, type Session } from '@winnow/engine';
import { isDType } from '@winnow/tensor';
import { fetchBlob, offer } from './page-protocol.js';

let loaded: { readonly session: Session } | undefined;

offer({
  async load({ modelUrl, contextSize, threads, batchSize, kvDType, attention }) {
    if (!isDType(kvDType)) throw new Error(`${kvDType} is not a dtype`);
    const backend = await createWasmBackend({ numThreads: threads });
    const model = await loadModel(await fetchBlob(modelUrl), {
      ...{ backend, context: contextSize, kvCache: { dtype: kvDType } },
      ...(batchSize === undefined ? {} : { batchSize }),
      ...(attention === undefined ? {} : { attention }),
    });
    loaded = { session: model.createSession() };
    return backend.numThreads;
  },

  async generate({ prompt, count, keepsContext }) {
    if (loaded === undefined) throw new Error('no model is loaded');
    const { session } = loaded;
    const startMs = performance.now();
    if (!keepsContext) session.reset();
    const options = { maxTokens: count, temperature: 0, ignoreEos: true };
    const { tokens, text, promptTokens, cachedTokens } = await session.generate(prompt, options).result();
    const timeMs = performance.now() - startMs;
    return { timeMs, numComputed: promptTokens - cachedTokens, numGenerated: tokens.length, text };
  },
});
