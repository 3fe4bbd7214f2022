import { createRng, UnsupportedOpError, type Rng } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { randomMemory, randomProgram, randomScalars } from '../../test/random-program.js';
import type { Backend, Executable, PrepareOptions, RecordProfile } from '../backend/backend.js';
import type { OpRecord, Program } from '../program/program.js';
import { validateProgram } from '../program/validate-program.js';
import { createReferenceBackend } from '../reference/backend.js';
import { dispatchProgram, type KernelBackend } from './dispatch.js';
import { withoutFallbacks } from './without-fallbacks.js';

type Prepared = { readonly executable: Executable; readonly memory: readonly Uint8Array[] };

async function prepare(
  backend: Backend,
  program: Program,
  rng: Rng,
  dispatch: (options: PrepareOptions) => Promise<Executable>,
): Promise<Prepared> {
  const buffers = new Map<PropertyKey & string, ReturnType<Backend['allocate']>>();
  const memory: Uint8Array[] = [];
  for (const [name, bytes] of randomMemory(program, rng)) {
    const handle = backend.allocate({ sizeBytes: bytes.length, usage: 'kv', label: name });
    await backend.write(handle, 0, bytes);
    buffers.set(name, handle);
    memory.push(backend.view(handle) as Uint8Array);
  }
  return { executable: await dispatch({ buffers, profile: true }), memory };
}

/** The reference backend without kernels for some ops. */
function kernelsWithout(ops: ReadonlySet<string>, backend: Backend): KernelBackend {
  return {
    ...backend,
    now: () => 0,
    supports: (op) => (ops.has(op) ? { supported: false, reason: 'left out' } : { supported: true }),
    prepareKernels(program, options) {
      expect(program.records.filter(({ op }) => ops.has(op))).toEqual([]);
      return backend.prepare(program, options);
    },
  };
}

async function outputsOf(executable: Executable, rng: Rng): Promise<unknown[]> {
  const boundaries: string[] = [];
  const results: unknown[] = [boundaries];
  for (const numTokens of [4, 1, 6]) {
    const { words } = randomScalars(executable.program, numTokens, rng);
    await executable.run(words, { onBoundary: async (name) => void boundaries.push(name) });
    const [rows, best, indices] = [new Float32Array(8 * numTokens), new Float32Array(3), new Int32Array(3)];
    await executable.read('rows', rows);
    await executable.read('best', best);
    await executable.read('indices', indices);
    results.push(rows, best, indices);
  }
  return results;
}

describe('dispatchProgram', () => {
  it('is bit-identical to the reference, whichever ops have no kernel', async () => {
    for (let seed = 1; seed <= 30; seed++) {
      const program = randomProgram(seed, 12);
      const ops = [...new Set(program.records.map(({ op }) => op))];
      const rng = createRng(seed);
      const missing = new Set(ops.filter(() => rng.nextInt(3) === 0).concat(ops[seed % ops.length] as string));
      const [whole, partial] = [createReferenceBackend(), createReferenceBackend()];
      const expected = await prepare(whole, program, createRng(seed), (options) => whole.prepare(program, options));
      const found = await prepare(partial, program, createRng(seed), (options) =>
        dispatchProgram(kernelsWithout(missing, partial), program, options),
      );
      expect(await outputsOf(found.executable, createRng(7))).toEqual(
        await outputsOf(expected.executable, createRng(7)),
      );
      expect(found.memory).toEqual(expected.memory);
      const work = (record: RecordProfile): RecordProfile => ({ ...record, timeMs: 0 });
      expect(found.executable.profile().map(work)).toEqual(expected.executable.profile().map(work));
      const numMissing = program.records.filter(({ op }) => missing.has(op)).length;
      expect(found.executable.fallbacks.reduce((sum, { numRecords }) => sum + numRecords, 0)).toBe(numMissing);
    }
  });

  it('returns the executable of the backend if it has all kernels', async () => {
    const backend = createReferenceBackend();
    const program = randomProgram(3, 5);
    const { executable } = await prepare(backend, program, createRng(3), (options) =>
      dispatchProgram(kernelsWithout(new Set(), backend), program, options),
    );
    expect(executable.fallbacks).toEqual([]);
    expect(executable.program).toBe(program);
  });
});

describe('errors and memory of the dispatcher', () => {
  it('rejects ops without a kernel on request, and unknown ops always', async () => {
    const backend = createReferenceBackend();
    const program = randomProgram(3, 5);
    const kernels = kernelsWithout(new Set(['top-k', 'none']), backend);
    await expect(dispatchProgram(kernels, program, { buffers: new Map(), onUnsupported: 'error' })).rejects.toThrow(
      'top-k: not supported by backend reference: left out',
    );
    const records = program.records.map((record): OpRecord => ({ ...record, op: 'none' }));
    const unknown = { ...program, records };
    await expect(dispatchProgram(kernels, unknown, { buffers: new Map() })).rejects.toThrow(UnsupportedOpError);
  });

  it('frees the shared activations on dispose, and when the kernels cannot be prepared', async () => {
    const backend = createReferenceBackend();
    const program = randomProgram(3, 5);
    let numLive = 0;
    const counting: Backend = {
      ...backend,
      allocate: (request) => (numLive++, backend.allocate(request)),
      free: (handle) => (numLive--, backend.free(handle)),
    };
    const kernels = kernelsWithout(new Set(['top-k']), counting);
    const prepared = await prepare(backend, program, createRng(3), (options) =>
      dispatchProgram(kernels, program, options),
    );
    expect(numLive).toBeGreaterThan(0);
    await prepared.executable.dispose();
    expect(numLive).toBe(0);
    await expect(dispatchProgram(kernels, program, { buffers: new Map() })).rejects.toThrow('no handle');
    expect(numLive).toBe(0);
  });
});

describe('withoutFallbacks', () => {
  it('keeps the program valid and its boundaries in order', () => {
    for (let seed = 1; seed <= 30; seed++) {
      const program = randomProgram(seed, 12);
      const rng = createRng(seed);
      const missing = new Set(program.records.flatMap((_, index) => (rng.nextInt(2) === 0 ? [index] : [])));
      const split = withoutFallbacks(program, (record) => missing.has(record));
      expect([...split.recordIndices, ...split.hostRecords.values()].flat().toSorted((a, b) => a - b)).toEqual(
        program.records.map((_, index) => index),
      );
      const own = split.program.segments.filter(({ boundary }) => !boundary?.startsWith('fallback.'));
      expect(own.map(({ boundary }) => boundary)).toEqual(program.segments.map(({ boundary }) => boundary));
      validateProgram({ ...split.program, records: split.records, segments: [wholeSegment(split.records.length)] });
    }
  });
});

function wholeSegment(end: number): Program['segments'][number] {
  return { begin: 0, end, boundary: undefined };
}
