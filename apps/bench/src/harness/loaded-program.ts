/** A program with its memory on a backend, ready to be timed. */
import {
  createScalarBlock,
  type Backend,
  type BufferHandle,
  type Executable,
  type Program,
  type ScalarBlock,
} from '@winnow/ops';

/** Fills the memory of the buffer `name`. */
export type FillBuffer = (name: string, target: Uint8Array) => void;

export class LoadedProgram {
  readonly executable: Executable;
  readonly scalars: ScalarBlock;
  /** Weights and caches by name. */
  readonly buffers: ReadonlyMap<string, BufferHandle>;
  readonly #backend: Backend;
  readonly #owned: readonly BufferHandle[];
  readonly #output: string;
  readonly #result = new Float32Array(64);

  private constructor(
    backend: Backend,
    executable: Executable,
    buffers: ReadonlyMap<string, BufferHandle>,
    owned: readonly BufferHandle[],
    output: string,
  ) {
    this.executable = executable;
    this.scalars = createScalarBlock(executable.program.scalars, executable.program.symbols);
    this.buffers = buffers;
    this.#backend = backend;
    this.#owned = owned;
    this.#output = output;
  }

  /**
   * @param output name of the program output to check
   * @param shared buffers of another program by name, which are reused instead of allocated and filled
   */
  static async load(
    backend: Backend,
    program: Program,
    fill: FillBuffer,
    output: string,
    shared: ReadonlyMap<string, BufferHandle> = new Map(),
  ): Promise<LoadedProgram> {
    const buffers = new Map<string, BufferHandle>();
    const owned: BufferHandle[] = [];
    for (const { name, usage, sizeBytes } of program.buffers) {
      if (usage !== 'weights' && usage !== 'kv') continue;
      const known = shared.get(name);
      const buffer = known ?? backend.allocate({ sizeBytes, usage, label: name });
      buffers.set(name, buffer);
      if (known !== undefined) continue;
      owned.push(buffer);
      const view = backend.view(buffer);
      const target = view ?? new Uint8Array(sizeBytes);
      fill(name, target);
      if (view === undefined) await backend.write(buffer, 0, target);
    }
    const executable = await backend.prepare(program, { buffers, onUnsupported: 'error' });
    return new LoadedProgram(backend, executable, buffers, owned, output);
  }

  /**
   * Runs it once and returns the milliseconds of the run alone. Then reads the output, so that the result is used.
   * @throws {Error} when the output contains a non-finite number, because the timed work was not valid
   */
  async run(): Promise<number> {
    const startMs = performance.now();
    await this.executable.run(this.scalars.words);
    const timeMs = performance.now() - startMs;
    await this.executable.read(this.#output, this.#result);
    if (this.#result.every(Number.isFinite)) return timeMs;
    throw new Error(`${this.#backend.name}: output ${this.#output} is not finite`);
  }

  async dispose(): Promise<void> {
    await this.executable.dispose();
    for (const buffer of this.#owned) this.#backend.free(buffer);
  }
}

/** Bytes as floats, for buffers of f32. */
export function asFloats(bytes: Uint8Array): Float32Array {
  return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
}
