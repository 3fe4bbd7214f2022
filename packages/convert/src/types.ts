/** What conversions take and give. */
import type { ByteSink } from '@winnow/bytes';
import type { GgufFile } from '@winnow/gguf';
import type { HubModel } from '@winnow/hub';
import type { KeptWeight, ModelFile } from '@winnow/models';
import type { DType } from '@winnow/tensor';

/** An open model. Closing is left to whoever opened it. */
export type ConvertSource =
  | { readonly format: 'gguf'; readonly gguf: GgufFile; readonly file: ModelFile }
  | { readonly format: 'safetensors'; readonly hub: HubModel; readonly file: ModelFile };

/** Where the files go: `open` must not show a file before its sink is closed. */
export interface ConvertTarget {
  /** @param name of the file, relative to the target */
  open(name: string): Promise<ByteSink>;
}

export interface ConvertProgress {
  readonly writtenBytes: number;
  readonly totalBytes: number;
}

export interface ConvertOptions {
  /** Type of the matrices. Default: as they are. */
  readonly type?: DType;
  /** Encode blocks of one type as blocks of another, which adds the errors of both. Default false: refused. */
  readonly allowRequantize?: boolean;
  /** Most bytes of tensor data per file. Default: one GGUF file; safetensors in files of 5 GB. */
  readonly splitSizeBytes?: number;
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: ConvertProgress) => void;
}

export interface ConvertResult {
  /** Names of the files, as they were opened. */
  readonly files: readonly string[];
  readonly sizeBytes: number;
  readonly numTensors: number;
  /** Matrices that could not be stored as asked. */
  readonly kept: readonly KeptWeight[];
  /** What the new files do not say or cannot do, one sentence each. */
  readonly notices: readonly string[];
}
