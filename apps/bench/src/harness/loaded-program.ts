/** A program with its memory on a backend, ready to be timed. */
import {
  createScalarBlock,
  type Backend,
  type BufferHandle,
  type Executable,
  type Program,
  type ScalarBlock,
} from '@winnow/ops';

export interface LoadedProgram {
  readonly executable: Executable;
  readonly scalars: ScalarBlock;
  /** Weights and caches by name. */
  readonly buffers: ReadonlyMap<string, BufferHandle>;
  /** Runs it once and returns the milliseconds of the run alone. Then reads the output, so that the result is used. */
  run(): Promise<number>;
  dispose(): Promise<void>;
}

/** Fills the memory of the buffer `name`. */
export type FillBuffer = (name: string, target: Uint8Array) => void;

/**
 * @param output name of the program output to check
 * @param shared buffers of another program by name, which are reused instead of allocated and filled
 * @throws {Error} from `run` when the output contains a non-finite number, because the timed work was not valid
 */
export async function loadProgram(
  backend: Backend,
  program: Program,
  fill: FillBuffer,
  output: string,
  shared: ReadonlyMap<string, BufferHandle> = new Map(),
): Promise<LoadedProgram> {
  const buffers = new Map<string, BufferHandle>();
  for (const { name, usage, sizeBytes } of program.buffers) {
    if (usage !== 'weights' && usage !== 'kv') continue;
    const known = shared.get(name);
    if (known !== undefined) {
      buffers.set(name, known);
      continue;
    }
    const buffer = backend.allocate({ sizeBytes, usage, label: name });
    buffers.set(name, buffer);
    const view = backend.view(buffer);
    const target = view ?? new Uint8Array(sizeBytes);
    fill(name, target);
    if (view === undefined) await backend.write(buffer, 0, target);
  }
  const executable = await backend.prepare(program, { buffers, onUnsupported: 'error' });
  const scalars = createScalarBlock(program.scalars, program.symbols);
  const result = new Float32Array(64);
  return {
    executable,
    scalars,
    buffers,
    async run() {
      const startMs = performance.now();
      await executable.run(scalars.words);
      const timeMs = performance.now() - startMs;
      await executable.read(output, result);
      if (!result.every(Number.isFinite)) throw new Error(`${backend.name}: output ${output} is not finite`);
      return timeMs;
    },
    async dispose() {
      await executable.dispose();
      for (const [name, buffer] of buffers) if (!shared.has(name)) backend.free(buffer);
    },
  };
}

/** Bytes as floats, for buffers of f32. */
export function asFloats(bytes: Uint8Array): Float32Array {
  return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
}
