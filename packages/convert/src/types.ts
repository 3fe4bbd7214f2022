/** Inputs and results of conversions. */
import type { ByteSink } from '@winnow/bytes';
import type { GgufFile } from '@winnow/gguf';
import type { HubModel } from '@winnow/hub';
import type { KeptWeight, ModelFile } from '@winnow/models';
import type { DType } from '@winnow/tensor';

/** An open model. The caller closes it. */
export type ConvertSource =
  | { readonly format: 'gguf'; readonly gguf: GgufFile; readonly file: ModelFile }
  | { readonly format: 'safetensors'; readonly hub: HubModel; readonly file: ModelFile };

/** Destination of the files: a file must not become visible before its sink is closed. */
export interface ConvertTarget {
  /** @param name of the file, relative to the target */
  open(name: string): Promise<ByteSink>;
}

export interface ConvertProgress {
  readonly writtenBytes: number;
  readonly totalBytes: number;
}

export interface ConvertOptions {
  /** Type of the matrices. Default: unchanged. */
  readonly type?: DType;
  /** Requantize quantized weights, which accumulates the errors of both types. Default false: an error. */
  readonly allowRequantize?: boolean;
  /** Maximum bytes of tensor data per file. Default: a single GGUF file; safetensors files of 5 GB. */
  readonly splitSizeBytes?: number;
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: ConvertProgress) => void;
}

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
