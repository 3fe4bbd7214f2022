/** The options of `loadModel` and `loadEmbeddingModel`. */
import type { Backend } from '@winnow/ops';
import type { EmbeddingPlanOptions } from '../embedding/plan.js';
import type { LoadProgress } from '../memory/load-buffers.js';
import type { PlanOptions } from '../plan/options.js';
import type { RuntimeOptions } from '../runtime/runtime.js';
import type { SparseLoadOptions } from '../weight-offload/options.js';
import type { WeightOptions } from './adapt-weights.js';
import type { OpenOptions } from './location.js';

/** Clock and randomness of the caller, for tests and replays. */
export interface HostOptions {
  /** Milliseconds since any origin. Default `performance.now`. */
  readonly now?: () => number;
  /** The seed of a generation that does not name one. Default: from `crypto`. */
  readonly randomSeed?: () => number;
}

/** Where a model runs. */
export interface BackendOptions {
  /** The backend. Default: a WebAssembly backend of the model's own, disposed together with it. */
  readonly backend?: Backend;
  /**
   * Creates the backend, instead of `backend`. When its device is lost, it creates another one: the weights are loaded again, and
   * running generations go on after their tokens were recomputed.
   */
  readonly createBackend?: () => Promise<Backend>;
  /** Threads of the default backend. Default: the number of hardware threads. */
  readonly numThreads?: number;
  /**
   * Activations of the default backend in GEMMs with block-quantized weights: `'int8'` quantizes them per block of 32, with
   * an error of at most 1/254 of the block's absolute maximum; `'f32'` keeps them and is slower. Default `'int8'`.
   */
  readonly activations?: 'f32' | 'int8';
  /** Whether ops that the backend lacks fall back to the reference (counted in `fallbacks`) or fail. Default `fallback`. */
  readonly onUnsupported?: 'fallback' | 'error';
  /** Measure the time of every op. Default false. */
  readonly profile?: boolean;
}

/** Observation of a load and of the loaded model. */
interface TraceOptions {
  /** Make the inputs of every FFN readable by `feedForward`, for calibration; costs memory. Default false. */
  readonly traceFeedForward?: boolean;
  readonly onProgress?: (progress: LoadProgress) => void;
}

export interface LoadOptions
  extends
    OpenOptions,
    HostOptions,
    BackendOptions,
    WeightOptions,
    SparseLoadOptions,
    PlanOptions,
    RuntimeOptions,
    TraceOptions {}

export interface EmbeddingLoadOptions
  extends OpenOptions, BackendOptions, WeightOptions, SparseLoadOptions, EmbeddingPlanOptions, TraceOptions {}
