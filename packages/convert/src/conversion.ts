/** Options and result of a conversion, for all formats. */
import type { StoredTensor } from '@winnow/bytes';
import type { GgufFile } from '@winnow/gguf';
import type { HubModel } from '@winnow/hub';
import type { KeptWeight, ModelFile, QuantizeType } from '@winnow/models';
import type { ImportanceMatrix } from './imatrix.js';
import type { OptionNames } from '@winnow/tensor';

/** An open model. The caller closes it. */
export type ConvertSource =
  | { readonly format: 'gguf'; readonly gguf: GgufFile; readonly file: ModelFile }
  | { readonly format: 'safetensors'; readonly hub: HubModel; readonly file: ModelFile };

export interface ConvertProgress {
  readonly writtenBytes: number;
  readonly totalBytes: number;
}

export interface ConvertOptions {
  /** Type of the matrices, or `q4_K_M`, which stores sensitive ones as q6_K. Default: unchanged. */
  readonly type?: QuantizeType;
  /** Requantize quantized weights, which accumulates the errors of both types. Default false: an error. */
  readonly allowRequantize?: boolean;
  /**
   * Importance of the input columns of each matrix, which weights the errors of quantization to q2_K to q6_K, iq4_nl, iq4_xs and
   * mxfp4. Matrices that it does not contain are quantized without weights.
   */
  readonly importance?: ImportanceMatrix;
  /** Maximum bytes of tensor data per file. Default: a single GGUF file; safetensors files of 5 GB. */
  readonly splitSizeBytes?: number;
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: ConvertProgress) => void;
}

export const convertNames: OptionNames<ConvertOptions> = {
  type: true,
  allowRequantize: true,
  importance: { source: true, columns: true },
  splitSizeBytes: true,
  signal: true,
  onProgress: true,
};

export interface ConvertResult {
  /** Names of the written files. */
  readonly files: readonly string[];
  readonly sizeBytes: number;
  readonly numTensors: number;
  /** Matrices that could not be stored in the requested type. */
  readonly kept: readonly KeptWeight[];
  /** Limitations of the new files, one sentence each. */
  readonly notices: readonly string[];
}

/** Reports how much of some tensors has been written. */
export class WriteProgress {
  readonly #totalBytes: number;
  readonly #onProgress: ConvertOptions['onProgress'];
  #writtenBytes = 0;

  constructor(tensors: readonly StoredTensor[], { onProgress }: ConvertOptions) {
    this.#totalBytes = tensors.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
    this.#onProgress = onProgress;
  }

  add(numBytes: number): void {
    this.#writtenBytes += numBytes;
    this.#onProgress?.({ writtenBytes: this.#writtenBytes, totalBytes: this.#totalBytes });
  }
}
