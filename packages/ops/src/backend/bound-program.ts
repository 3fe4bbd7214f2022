/** A small program with its memory on a backend: runs a few ops outside of a model. */
import { ArgumentError } from '@winnow/tensor';
import { ProgramBuilder } from '../program/program-builder.js';
import { scalarBufferIndex, arenaBufferIndex, type Program } from '../program/program.js';
import { createScalarBlock, type ScalarBlock } from '../program/scalars.js';
import type { Backend, BufferHandle, Executable, Fallback, RunOptions } from './backend.js';

export interface BoundProgramOptions {
  readonly backend: Backend;
  /** Capacity of each symbol. Default: no symbols. */
  readonly symbols?: Readonly<Record<string, number>>;
  /** Memory of the caller, by name of the external tensor. The program allocates all other external tensors. */
  readonly buffers?: ReadonlyMap<string, BufferHandle>;
  /**
   * Contents of external tensors, by name. They are written before the backend prepares the program, which may repack
   * weights. `build` may still add to them.
   */
  readonly weights?: ReadonlyMap<string, Uint8Array>;
  /** What to do with an op that the backend does not support. Default `'fallback'`. */
  readonly onUnsupported?: 'fallback' | 'error';
}

/**
 * A program that is prepared once and run many times. Fill inputs with `write` and `scalars`, call `run`, then `read` outputs; one
 * caller at a time. The memory of the backend stays allocated until `close`.
 *
 * ```ts
 * const rotation = await BoundProgram.prepare({ backend }, (b) => {
 *   b.output('y', b.activation('hadamard', { x: b.external('x', 'kv', 'f32', [8, 64]) }));
 * });
 * await rotation.write('x', rows);
 * await rotation.run();
 * await rotation.read('y', rotated);
 * ```
 */
export class BoundProgram {
  readonly scalars: ScalarBlock;
  /** Memory of the external tensors, by name. */
  readonly buffers: ReadonlyMap<string, BufferHandle>;
  readonly #backend: Backend;
  readonly #executable: Executable;
  readonly #owned: readonly BufferHandle[];
  #isOpen = true;

  private constructor(
    backend: Backend,
    executable: Executable,
    buffers: ReadonlyMap<string, BufferHandle>,
    owned: readonly BufferHandle[],
  ) {
    const { scalars, symbols } = executable.program;
    this.scalars = createScalarBlock(scalars, symbols);
    this.#backend = backend;
    this.#executable = executable;
    this.buffers = buffers;
    this.#owned = owned;
  }

  /**
   * Builds a program, allocates its memory and prepares it.
   * @throws {CapacityError} when the backend runs out of memory; then nothing stays allocated
   * @throws {ShapeError | DTypeError | ArgumentError} from `build`, when the contract of an op is violated
   */
  static async prepare(
    {
      backend,
      symbols = {},
      buffers = new Map(),
      weights = new Map(),
      onUnsupported = 'fallback',
    }: BoundProgramOptions,
    build: (b: ProgramBuilder) => void,
  ): Promise<BoundProgram> {
    const builder = new ProgramBuilder(symbols);
    build(builder);
    const program = builder.build();
    const owned: BufferHandle[] = [];
    try {
      const bound = bindBuffers(backend, program, buffers, owned);
      for (const [name, bytes] of weights) await backend.write(bufferNamed(bound, name), 0, bytes);
      const executable = await backend.prepare(program, { buffers: bound, onUnsupported });
      return new BoundProgram(backend, executable, bound, owned);
    } catch (error) {
      for (const buffer of owned) backend.free(buffer);
      throw error;
    }
  }

  get program(): Program {
    return this.#executable.program;
  }

  /** Ops that run on the reference because the backend has no kernel for them. */
  get fallbacks(): readonly Fallback[] {
    return this.#executable.fallbacks;
  }

  /** Bytes of the memory that belongs to the program. */
  get sizeBytes(): number {
    return this.#owned.reduce((sum, { sizeBytes }) => sum + sizeBytes, this.#executable.program.peakBytes);
  }

  /** Memory of an external tensor. @throws {ArgumentError} when there is no such tensor */
  buffer(name: string): BufferHandle {
    return bufferNamed(this.buffers, name);
  }

  /** Fills the first bytes of an external tensor. */
  write(name: string, values: Float32Array | Int32Array | Uint8Array): Promise<void> {
    const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
    return this.#backend.write(this.buffer(name), 0, bytes);
  }

  /** Runs all records: see `Executable.run`. */
  run(options?: RunOptions): Promise<void> {
    return this.#executable.run(this.scalars.words, options);
  }

  /** Copies the first elements of an output: see `Executable.read`. */
  read(output: string, target: Float32Array | Int32Array): Promise<void> {
    return this.#executable.read(output, target);
  }

  /** Frees the memory that belongs to the program. Closing twice is harmless. */
  async close(): Promise<void> {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    await this.#executable.dispose();
    for (const buffer of this.#owned) this.#backend.free(buffer);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

function bufferNamed(buffers: ReadonlyMap<string, BufferHandle>, name: string): BufferHandle {
  const buffer = buffers.get(name);
  if (buffer !== undefined) return buffer;
  throw new ArgumentError({ argument: 'external tensor', expected: [...buffers.keys()].join(' | '), actual: name });
}

/** Uses the caller's memory if given; the rest is allocated and added to `owned`. */
function bindBuffers(
  backend: Backend,
  program: Program,
  given: ReadonlyMap<string, BufferHandle>,
  owned: BufferHandle[],
): Map<string, BufferHandle> {
  const bound = new Map<string, BufferHandle>();
  for (const [index, { name, usage, sizeBytes }] of program.buffers.entries()) {
    if (index === scalarBufferIndex || index === arenaBufferIndex) continue;
    let handle = given.get(name);
    if (handle === undefined) {
      handle = backend.allocate({ sizeBytes, usage, label: name });
      owned.push(handle);
    }
    bound.set(name, handle);
  }
  return bound;
}
