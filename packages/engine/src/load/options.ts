/** The options of `loadModel` and `loadEmbeddingModel`. */
import type { CreateWasmBackendOptions } from '@winnow/backend-wasm';
import type { Backend } from '@winnow/ops';
import type { EmbeddingPlanOptions, RerankerPlanOptions } from '../embedding/plan.js';
import type { LoadProgress } from '../memory/load-buffers.js';
import { traceNames, type TraceOptions } from '../memory/step-outputs.js';
import { kvCacheNames, type PlanOptions } from '../plan/options.js';
import type { RuntimeOptions } from '../runtime/runtime.js';
import { sparsityNames, type SparsityOptions } from '../sparsity/options.js';
import { memoryNames } from '../weight-offload/options.js';
import type { WeightOptions } from './adapt-weights.js';
import { loraNames } from './adapters.js';
import type { OpenOptions } from './location.js';
import { mmprojNames, type MmprojOptions } from './mmproj-options.js';
import type { OptionNames } from '@winnow/tensor';
import type { DraftModelOptions } from '../generation/draft-model.js';

/** Clock and randomness of the caller, for tests and replays. */
export interface HostOptions {
  /** Milliseconds since any origin. Default `performance.now`. */
  readonly now?: () => number;
  /** The seed of a generation that does not name one. Default: from `crypto`. */
  readonly randomSeed?: () => number;
}

/** Where a model runs. */
export interface BackendOptions {
  /** The backend. Default: a WASM backend per model, disposed of together with it. */
  readonly backend?: Backend;
  /**
   * Creates the backend, instead of `backend`. When its device is lost, it creates another one: the weights are loaded
   * again, and running generations continue after their tokens are recomputed.
   */
  readonly createBackend?: () => Promise<Backend>;
  /** Number of threads of the default backend. Default: the number of hardware threads. */
  readonly threads?: number;
  /**
   * Activations of the default backend in GEMMs with block-quantized weights: `'int8'` quantizes them per block of 32,
   * with an error of at most 1/254 of the block's absolute maximum; `'f32'` is exact but slower. Default `'int8'`.
   */
  readonly activations?: 'f32' | 'int8';
  /**
   * Native kernels of the default backend, in Node: `true` requires them, a name such as `'avx2'` requires that
   * instruction set, `false` turns them off. Default: the best of this machine, or what the environment variable
   * `WINNOW_NATIVE` says.
   */
  readonly native?: CreateWasmBackendOptions['native'];
  /**
   * Whether ops that the backend lacks fall back to the reference (counted in `fallbacks`) or fail. Default `fallback`.
   */
  readonly onUnsupported?: 'fallback' | 'error';
  /** Measure the time of every op. Default false. */
  readonly profile?: boolean;
}

/** Options of every kind of model, apart from its plan. */
interface CommonOptions extends OpenOptions, BackendOptions, WeightOptions {
  /** Skips FFN neurons as calibrated. Default: all neurons are computed. */
  readonly sparsity?: SparsityOptions;
  /** Makes the inputs of layers readable for measurements; costs memory. Default: none. */
  readonly trace?: TraceOptions;
  /** Called while the weights load. */
  readonly onProgress?: (progress: LoadProgress) => void;
}

export interface LoadOptions
  extends CommonOptions, HostOptions, PlanOptions, RuntimeOptions, DraftModelOptions, MmprojOptions {}

export interface EmbeddingLoadOptions extends CommonOptions, EmbeddingPlanOptions {}

export interface RerankerLoadOptions extends Omit<CommonOptions, 'sparsity' | 'trace'>, RerankerPlanOptions {}

export const openOptionNames: OptionNames<OpenOptions> = { fetch: true, signal: true };

const sharedNames: OptionNames<Omit<CommonOptions, 'sparsity' | 'trace'>> = {
  ...openOptionNames,
  backend: true,
  createBackend: true,
  threads: true,
  activations: true,
  native: true,
  onUnsupported: true,
  profile: true,
  quantize: true,
  lora: loraNames,
  onProgress: true,
};

const commonNames: OptionNames<CommonOptions> = { ...sharedNames, sparsity: sparsityNames, trace: traceNames };

export const loadOptionNames: OptionNames<LoadOptions> = {
  ...commonNames,
  context: true,
  batchSize: true,
  maxSessions: true,
  kvCache: kvCacheNames,
  attention: true,
  policyFile: true,
  memory: memoryNames,
  onEvent: true,
  promptCache: true,
  speculative: true,
  draftModel: true,
  ...mmprojNames,
  now: true,
  randomSeed: true,
};

export const rerankerLoadOptionNames: OptionNames<RerankerLoadOptions> = {
  ...sharedNames,
  context: true,
  batchSize: true,
  maxTexts: true,
  memory: memoryNames,
};

export const embeddingLoadOptionNames: OptionNames<EmbeddingLoadOptions> = {
  ...commonNames,
  context: true,
  batchSize: true,
  maxTexts: true,
  pooling: true,
  isMatryoshka: true,
  memory: memoryNames,
};
