/** What a backend provides: memory, and the execution of whole programs. */
import type { DType } from '@winnow/tensor';
import type { Attributes } from './op-spec.js';
import type { BufferUsage, Program } from './program.js';

/** Memory of a backend. Opaque: only the backend that gave it can use it. */
export interface BufferHandle {
  readonly sizeBytes: number;
  readonly usage: BufferUsage;
}

/**
 * Buffers that the same ops use, such as those of one layer. A backend with several memories puts them into one. Buffers belong
 * to a group by being allocated with the same object.
 */
export interface BufferGroup {
  /** Of all its buffers together. */
  readonly sizeBytes: number;
}

/** What `supports` is asked about: one op with the dtypes it meets. */
export interface OpDescription {
  readonly dtypes: Readonly<Record<string, DType>>;
  readonly attributes: Attributes;
}

export type Support = { readonly supported: true } | { readonly supported: false; readonly reason: string };

/** An op that ran on the reference because the backend has no kernel for it. */
export interface Fallback {
  readonly op: string;
  readonly reason: string;
  readonly numRecords: number;
}

export interface PrepareOptions {
  /** Memory of the program's weights and caches, by buffer name. */
  readonly buffers: ReadonlyMap<string, BufferHandle>;
  /** What to do with an op that the backend does not support. Default `'fallback'`. */
  readonly onUnsupported?: 'fallback' | 'error';
  /** Measure every record. Default false. */
  readonly profile?: boolean;
  readonly signal?: AbortSignal;
}

export interface RunOptions {
  readonly signal?: AbortSignal;
  /** Called after each segment that has a boundary; the next segment starts when it is done. */
  readonly onBoundary?: (boundary: string) => Promise<void>;
}

/** Time and work of one record, summed over the runs so far. */
export interface RecordProfile {
  readonly op: string;
  readonly layer: number;
  readonly numRuns: number;
  readonly timeMs: number;
  readonly flops: number;
  readonly bytes: number;
  /** Whether most of the operations were products of 8-bit integers. Default false: floating-point numbers. */
  readonly isInt8?: boolean;
}

/** A program made ready to run. One run at a time. */
export interface Executable {
  readonly program: Program;
  readonly fallbacks: readonly Fallback[];
  /**
   * Runs all records with these scalars. The caller's event loop stays responsive, also over many short runs.
   * @throws {ArgumentError | CapacityError} for the wrong number of words, or a symbol beyond its capacity
   * @throws {BackendError} when it is running already
   * @throws {ReleasedError} when the executable was disposed or a buffer bound to it was freed
   * @throws the signal's reason when aborted, between ops; the activations are undefined then, the caches may hold
   *   the rows of this step, and the executable can run again
   */
  run(scalars: Int32Array, options?: RunOptions): Promise<void>;
  /** Copies the first `target.length` elements of a program output. */
  read(output: string, target: Float32Array | Int32Array): Promise<void>;
  /** Per record; empty unless prepared with `profile`. */
  profile(): readonly RecordProfile[];
  dispose(): Promise<void>;
}

/** A place where programs run. */
export interface Backend {
  readonly name: string;
  supports(op: string, description: OpDescription): Support;
  /** @throws {CapacityError} when there is not enough memory */
  allocate(options: { sizeBytes: number; usage: BufferUsage; label: string; group?: BufferGroup }): BufferHandle;
  /** The buffer's memory itself when the host can reach it, so that files are read straight into it. */
  view(buffer: BufferHandle): Uint8Array | undefined;
  write(buffer: BufferHandle, byteOffset: number, bytes: Uint8Array): Promise<void>;
  read(buffer: BufferHandle, byteOffset: number, target: Uint8Array): Promise<void>;
  /** Executables that were bound to the buffer throw `ReleasedError` from then on instead of running. */
  free(buffer: BufferHandle): void;
  prepare(program: Program, options: PrepareOptions): Promise<Executable>;
  /** Frees everything. Using the backend or its executables afterwards throws `ReleasedError`. */
  dispose(): Promise<void>;
}
