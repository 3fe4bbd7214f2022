/** What a backend provides: memory, and the execution of whole programs. */
import { ArgumentError, type DeviceLostError, type DType } from '@winnow/tensor';
import type { BufferUsage, Program } from '../program/program.js';
import type { Attributes } from '../spec/op-spec.js';

/** Memory of a backend. Opaque: only the backend that allocated it can use it. */
export interface BufferHandle {
  readonly sizeBytes: number;
  readonly usage: BufferUsage;
}

/**
 * Buffers that the same ops use, such as those of one layer. A backend with several memories allocates them in one.
 * Buffers belong to a group if they are allocated with the same object.
 */
export interface BufferGroup {
  /** Total size of its buffers. */
  readonly sizeBytes: number;
}

/** The argument of `supports`: an op with its dtypes. */
export interface OpDescription {
  readonly dtypes: Readonly<Record<string, DType>>;
  readonly attributes: Attributes;
}

export type Support = { readonly supported: true } | { readonly supported: false; readonly reason: string };

/** Limits of a backend, which the memory plan of a model respects. */
export interface BackendLimits {
  /** Size of the largest buffer; `Infinity` if only the host's memory is a limit. */
  readonly maxBufferBytes: number;
  /** Size of all buffers and prepared programs together; `Infinity` as above. */
  readonly maxTotalBytes: number;
  /** Byte offsets and sizes of `copy` must be multiples of it; `copyBytes` accepts any. */
  readonly copyAlignment: number;
}

/**
 * The layout of a neuron's rows: gate, up and down interleaved, or in separate matrices.
 */
export type NeuronLayout = 'interleaved' | 'separate';

/** Maximum number of tokens of a step in which the bits of each token are those of a step of its own. */
export const maxInvariantTokens = 16;

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
  /**
   * Names of buffers that the host reads at boundaries while the program runs. A backend must not repack them. Default:
   * none.
   */
  readonly hostBuffers?: ReadonlySet<string>;
  /**
   * The bits of a token must not depend on the other tokens of its step, up to `maxInvariantTokens`: only for backends
   * with `isBatchInvariant`. May cost speed. Default false.
   */
  readonly batchInvariant?: boolean;
  /** Measure every record. Default false. */
  readonly profile?: boolean;
  readonly signal?: AbortSignal;
}

export interface RunOptions {
  readonly signal?: AbortSignal;
  /** Called after each segment with a boundary; the next segment starts when its promise resolves. */
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
  /** Whether most of the operations were on 8-bit integers. Default false: floating point. */
  readonly isInt8?: boolean;
}

/** A prepared program. One run at a time. */
export interface Executable {
  readonly program: Program;
  readonly fallbacks: readonly Fallback[];
  /**
   * Runs all records with these scalars. The caller's event loop stays responsive, even over many short runs.
   * @throws {ArgumentError | CapacityError} for the wrong number of words, or a symbol beyond its capacity
   * @throws {BackendError} when it is already running
   * @throws {ReleasedError} when the executable was disposed of or a bound buffer was freed
   * @throws the signal's reason when aborted, between ops; then activations are undefined, caches may hold
   *   the rows of this step, and the executable can run again
   */
  run(scalars: Int32Array, options?: RunOptions): Promise<void>;
  /** Copies the first `target.length` elements of a program output. */
  read(output: string, target: Float32Array | Int32Array): Promise<void>;
  /** Per record; empty unless prepared with `profile`. */
  profile(): readonly RecordProfile[];
  dispose(): Promise<void>;
}

/** A device that runs programs. */
export interface Backend {
  readonly name: string;
  /** What differs from the requested options, such as the number of threads: one sentence each. Default: nothing. */
  readonly notices?: readonly string[];
  /** Whether programs prepared with `batchInvariant` are so. Default false. */
  readonly isBatchInvariant?: boolean;
  readonly limits: BackendLimits;
  /**
   * Resolves when the device is lost, and never otherwise, not even on `dispose`. From then on the contents of all
   * buffers are undefined, and `allocate`, `prepare` and `run` throw this error. `dispose` still works.
   */
  readonly lost: Promise<DeviceLostError>;
  supports(op: string, description: OpDescription): Support;
  /**
   * Share of active neurons, from 0 to 1, above which a dense FFN block is faster than a sparse one, for one token.
   * Measured on this backend; a lower bound for dtypes that were not measured.
   * @param dtype dtype of the rows
   */
  breakEvenRatio(dtype: DType, layout: NeuronLayout): number;
  /** @throws {CapacityError} when there is not enough memory */
  allocate(options: { sizeBytes: number; usage: BufferUsage; label: string; group?: BufferGroup }): BufferHandle;
  /** The buffer's memory if the host can access it, so that files can be read directly into it. */
  view(buffer: BufferHandle): Uint8Array | undefined;
  write(buffer: BufferHandle, byteOffset: number, bytes: Uint8Array): Promise<void>;
  read(buffer: BufferHandle, byteOffset: number, target: Uint8Array): Promise<void>;
  /**
   * Copies bytes between buffers on the device. A run that begins after the call sees the result, and so does the next
   * segment of a run that is at a boundary, even if the caller does not await the copy. A copy never happens in the
   * middle of an op, but it may happen between two ops of a running segment, so do not touch the buffers of such a
   * segment. Within one buffer the two ranges must not overlap.
   * @throws {ArgumentError} for a range beyond a buffer, ranges that overlap, or sizes that are not multiples of
   *   `limits.copyAlignment`
   */
  copy(from: BufferHandle, fromOffset: number, to: BufferHandle, toOffset: number, sizeBytes: number): Promise<void>;
  /** Executables that are bound to the buffer then throw `ReleasedError` instead of running. */
  free(buffer: BufferHandle): void;
  prepare(program: Program, options: PrepareOptions): Promise<Executable>;
  /** Frees everything. Using the backend or its executables afterwards throws `ReleasedError`. */
  dispose(): Promise<void>;
}

/**
 * Copies bytes between buffers: on the device if offsets and size are aligned to `limits.copyAlignment`, else through
 * the host.
 */
export async function copyBytes(
  backend: Pick<Backend, 'limits' | 'copy' | 'read' | 'write'>,
  { from, fromOffset, to, toOffset, sizeBytes }: CopyRequest,
): Promise<void> {
  if ([fromOffset, toOffset, sizeBytes].every((value) => value % backend.limits.copyAlignment === 0)) {
    return backend.copy(from, fromOffset, to, toOffset, sizeBytes);
  }
  const bytes = new Uint8Array(sizeBytes);
  await backend.read(from, fromOffset, bytes);
  await backend.write(to, toOffset, bytes);
}

/** The arguments of `Backend.copy` by name. */
export interface CopyRequest {
  readonly from: BufferHandle;
  readonly fromOffset: number;
  readonly to: BufferHandle;
  readonly toOffset: number;
  readonly sizeBytes: number;
}

/**
 * Rejects invalid copies; backends check the ranges against their buffers first.
 * @throws {ArgumentError} for ranges of one buffer that overlap, or offsets and sizes off the alignment
 */
export function checkCopy({ from, fromOffset, to, toOffset, sizeBytes }: CopyRequest, alignment: number): void {
  const overlaps = from === to && fromOffset < toOffset + sizeBytes && toOffset < fromOffset + sizeBytes;
  const isAligned = [fromOffset, toOffset, sizeBytes].every((value) => value % alignment === 0);
  if (isAligned && !(overlaps && sizeBytes > 0)) return;
  throw new ArgumentError({
    argument: 'copy',
    expected: isAligned ? 'ranges that do not overlap' : `offsets and a size that are multiples of ${alignment}`,
    actual: `${sizeBytes} bytes from ${fromOffset} to ${toOffset}`,
  });
}
