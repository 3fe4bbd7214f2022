/** The page with wllama, which is not a dependency and therefore has no types. */
import { firstByteId } from '../models/synthetic-vocabulary.js';
import { fetchBlob, offer } from './page-protocol.js';

/** The parts of the package in use. */
interface Wllama {
  loadModel(blobs: Blob[], options: object): Promise<void>;
  getNumThreads(): number;
  createCompletion(options: object): Promise<{
    readonly choices: readonly { readonly text: string }[];
    readonly timings?: { readonly prompt_n: number; readonly predicted_n: number };
  }>;
}
interface WllamaModule {
  readonly Wllama: new (paths: object, options: object) => Wllama;
}

/**
 * A model with random weights selects bytes that are not UTF-8, which wllama cannot return: those tokens are excluded.
 */
const noBrokenText = Array.from({ length: 128 }, (_, i) => [firstByteId + 128 + i, false] as const);

let wllama: Wllama | undefined;

offer({
  async load({ modelUrl, contextSize, threads, kvDType, flashAttention }) {
    const { Wllama } = (await import(new URL('/wllama/index.js', location.href).href)) as WllamaModule;
    wllama = new Wllama({ default: new URL('/wllama/wllama.wasm', location.href).href }, { suppressNativeLog: true });
    await wllama.loadModel([await fetchBlob(modelUrl)], {
      ...{ n_ctx: contextSize, n_threads: threads, n_gpu_layers: 0, n_parallel: 1 },
      ...{ cache_type_k: kvDType, cache_type_v: kvDType },
      ...(flashAttention ? { flash_attn: true } : {}),
    });
    return wllama.getNumThreads();
  },

  async generate({ prompt, count, keepsContext }) {
    if (wllama === undefined) throw new Error('no model is loaded');
    const startMs = performance.now();
    const { choices, timings } = await wllama.createCompletion({
      ...{ prompt, max_tokens: count, temperature: 0, ignore_eos: true, cache_prompt: keepsContext },
      logit_bias: noBrokenText,
    });
    const timeMs = performance.now() - startMs;
    if (timings === undefined) throw new Error('wllama reported no token counts');
    const { prompt_n: numComputed, predicted_n: numGenerated } = timings;
    return { timeMs, numComputed, numGenerated, text: choices[0]?.text ?? '' };
  },
});
