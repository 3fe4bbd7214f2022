/** What a model file says of itself. */
import type { DecoderConfig } from '@winnow/models';
import type { DType } from '@winnow/tensor';
import type { MemoryPlan } from './memory-plan.js';

/** A tensor in a model file. */
export interface TensorInfo {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly sizeBytes: number;
}

/** What a model file says, without loading its weights. */
export interface ModelInfo {
  readonly name: string;
  readonly format: 'gguf' | 'safetensors';
  readonly config: DecoderConfig;
  readonly tensors: readonly TensorInfo[];
  /** GGUF metadata or the values of config.json; long arrays are given by their length. */
  readonly metadata: Readonly<Record<string, unknown>>;
  /** Within the limit that was given; when that is too small, the plan of the smallest limit that works. */
  readonly plan: MemoryPlan;
}
