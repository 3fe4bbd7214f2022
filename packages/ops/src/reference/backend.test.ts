import { ArgumentError, BackendError, CapacityError, ReleasedError } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import type { Backend, BufferHandle, Executable, PrepareOptions } from '../backend/backend.js';
import { opSpec } from '../ops/registry.js';
import { ProgramBuilder } from '../program/program-builder.js';
import type { Program } from '../program/program.js';
import { createScalarBlock } from '../program/scalars.js';
import { createReferenceBackend, type ReferenceBackendOptions } from './backend.js';

const width = 4;

/** `y = table[tokens] + numAdds * table[tokens]`, with a boundary in the middle. */
function sums(numAdds: number, boundary?: string): Program {
  const b = new ProgramBuilder({ T: 3 });
  const table = b.external('table', 'weights', 'f32', [5, width]);
  const x = b.activation('embedding-lookup', { table, tokens: b.scalar('tokens', ['T']) });
  let y = x;
  for (let i = 0; i < numAdds; i++) {
    if (boundary !== undefined && i === numAdds >> 1) b.boundary(boundary);
    y = b.activation('add', { a: y, b: x });
  }
  b.output('y', y);
  return b.build();
}

async function prepare(
  backend: Backend,
  program: Program,
  options: Partial<PrepareOptions> = {},
): Promise<{ executable: Executable; table: BufferHandle }> {
  const table = backend.allocate({ sizeBytes: 5 * width * 4, usage: 'weights', label: 'table' });
  const values = Float32Array.from({ length: 5 * width }, (_, i) => i);
  await backend.write(table, 0, new Uint8Array(values.buffer));
  return { table, executable: await backend.prepare(program, { buffers: new Map([['table', table]]), ...options }) };
}

function scalarsOf(program: Program, tokens: readonly number[]): Int32Array {
  const block = createScalarBlock(program.scalars, program.symbols);
  block.bind('T', tokens.length);
  block.slot('tokens').set(tokens);
  return block.words;
}

/** A clock that advances by `stepMs` at every reading, and a host that counts yields to it. */
function fakeHost(stepMs: number): { host: Required<ReferenceBackendOptions>; turns: () => number } {
  let time = 0;
  let turns = 0;
  return {
    host: { now: () => (time += stepMs), yieldToHost: async () => void turns++ },
    turns: () => turns,
  };
}

describe('run and read', () => {
  it('computes with the tokens of each step', async () => {
    const program = sums(2);
    const { executable } = await prepare(createReferenceBackend(), program);
    const y = new Float32Array(2 * width);
    await executable.run(scalarsOf(program, [4, 0]));
    await executable.read('y', y);
    expect([...y]).toEqual([48, 51, 54, 57, 0, 3, 6, 9]);
    await executable.run(scalarsOf(program, [1]));
    await executable.read('y', y.subarray(0, width));
    expect([...y.subarray(0, width)]).toEqual([12, 15, 18, 21]);
    await executable.run(scalarsOf(program, []));
    expect(executable.fallbacks).toEqual([]);
    expect(executable.program).toBe(program);
  });

  it('keeps its own copy of the scalars', async () => {
    const program = sums(1);
    const { executable } = await prepare(createReferenceBackend({ yieldToHost: async () => {} }), program);
    const scalars = scalarsOf(program, [2]);
    const run = executable.run(scalars);
    scalars.fill(0);
    await run;
    const y = new Float32Array(1);
    await executable.read('y', y);
    expect(y[0]).toBe(16);
  });

  it('rejects reads of missing outputs', async () => {
    const program = sums(1);
    const { executable } = await prepare(createReferenceBackend(), program);
    await expect(executable.read('z', new Float32Array(1))).rejects.toThrow('one of y (f32, at most 12)');
    await expect(executable.read('y', new Int32Array(1))).rejects.toThrow(ArgumentError);
    await expect(executable.read('y', new Float32Array(13))).rejects.toThrow(ArgumentError);
  });

  it('rejects mismatched scalars', async () => {
    const program = sums(1);
    const { executable } = await prepare(createReferenceBackend(), program);
    const scalars = scalarsOf(program, [1, 2]);
    await expect(executable.run(scalars.subarray(1))).rejects.toThrow('scalars: expected 4 words, got 3 words');
    scalars[0] = 4;
    await expect(executable.run(scalars)).rejects.toThrow(CapacityError);
    scalars[0] = -1;
    await expect(executable.run(scalars)).rejects.toThrow(ArgumentError);
    scalars[0] = 2;
    await executable.run(scalars);
  });
});

describe('the host', () => {
  it('yields whenever ops took more than 8 ms, by the given clock', async () => {
    const program = sums(99);
    const { host, turns } = fakeHost(1);
    const { executable } = await prepare(createReferenceBackend(host), program);
    await executable.run(scalarsOf(program, [1]));
    // one clock reading per record and one more after each yield: a yield after every 9th reading
    expect(turns()).toBe(Math.floor(100 / 9));
  });

  it('yields also between many short runs', async () => {
    const program = sums(1);
    const { host, turns } = fakeHost(1);
    const { executable } = await prepare(createReferenceBackend(host), program);
    for (let i = 0; i < 50; i++) await executable.run(scalarsOf(program, [1]));
    expect(turns()).toBeGreaterThanOrEqual(10);
  });

  it('keeps ticking during a long program with the real clock', async () => {
    const program = sums(20_000);
    const { executable } = await prepare(createReferenceBackend(), program);
    let ticks = 0;
    const timer = setInterval(() => ticks++, 0);
    // runs until the host had a tick during three runs; yields depend on time, so the duration of a run does not matter
    for (let runsWithTicks = 0; runsWithTicks < 3;) {
      const before = ticks;
      await executable.run(scalarsOf(program, [1]));
      if (ticks > before) runsWithTicks++;
    }
    clearInterval(timer);
    expect(ticks).toBeGreaterThanOrEqual(3);
  });

  it('is called at each boundary, and the next segment waits for it', async () => {
    const program = sums(4, 'fetch');
    const { executable, table } = await prepare(createReferenceBackend(), program);
    const seen: string[] = [];
    await executable.run(scalarsOf(program, [1]), {
      onBoundary: async (name) => {
        await new Promise((resolve) => setTimeout(resolve, 0));
        seen.push(name);
      },
    });
    await executable.run(scalarsOf(program, [1])); // without a listener nothing happens
    expect(seen).toEqual(['fetch']);
    const failure = new Error('no such page');
    await expect(executable.run(scalarsOf(program, [1]), { onBoundary: () => Promise.reject(failure) })).rejects.toBe(
      failure,
    );
    await executable.run(scalarsOf(program, [1]));
    expect(table.sizeBytes).toBe(80);
  });
});

describe('abort', () => {
  it('stops between ops and leaves the executable usable', async () => {
    const program = sums(50);
    const controller = new AbortController();
    const reason = new Error('enough');
    let turns = 0;
    const { host } = fakeHost(10);
    const yieldToHost = async (): Promise<void> => {
      if (++turns === 7) controller.abort(reason);
    };
    const { executable } = await prepare(createReferenceBackend({ ...host, yieldToHost }), program, { profile: true });
    await expect(executable.run(scalarsOf(program, [1]), { signal: controller.signal })).rejects.toBe(reason);
    expect(executable.profile().filter(({ numRuns }) => numRuns === 1)).toHaveLength(7);
    await executable.run(scalarsOf(program, [1]));
    expect(executable.profile().map(({ numRuns }) => numRuns)).toEqual([...Array(7).fill(2), ...Array(44).fill(1)]);
  });

  it('before the start runs nothing', async () => {
    const empty = new ProgramBuilder({}).build();
    const backend = createReferenceBackend();
    const executable = await backend.prepare(empty, { buffers: new Map() });
    await executable.run(new Int32Array(0));
    const signal = AbortSignal.abort();
    await expect(executable.run(new Int32Array(0), { signal })).rejects.toBe(signal.reason);
    await expect(backend.prepare(empty, { buffers: new Map(), signal })).rejects.toBe(signal.reason);
  });
});

describe('errors of runs and buffers', () => {
  it('one run at a time', async () => {
    const program = sums(2, 'wait');
    const { executable } = await prepare(createReferenceBackend(), program);
    let release = (): void => {};
    const first = executable.run(scalarsOf(program, [1]), {
      onBoundary: () => new Promise((resolve) => (release = resolve)),
    });
    await expect(executable.run(scalarsOf(program, [1]))).rejects.toThrow(BackendError);
    await expect(executable.run(scalarsOf(program, [1]))).rejects.toThrow('already running');
    release();
    await first;
    await executable.run(scalarsOf(program, [1]));
  });

  it('buffers of another backend, missing or too small', async () => {
    const backend = createReferenceBackend();
    const other = createReferenceBackend();
    const foreign = other.allocate({ sizeBytes: 80, usage: 'weights', label: 'table' });
    const small = backend.allocate({ sizeBytes: 79, usage: 'weights', label: 'table' });
    const bind = (handle: BufferHandle): Promise<Executable> =>
      backend.prepare(sums(1), { buffers: new Map([['table', handle]]) });
    await expect(bind(foreign)).rejects.toThrow(BackendError);
    await expect(bind(small)).rejects.toThrow('buffer table: expected 80 bytes, got 79 bytes');
    await expect(backend.prepare(sums(1), { buffers: new Map() })).rejects.toThrow('got no handle');
    await expect(backend.write(foreign, 0, new Uint8Array(1))).rejects.toThrow(BackendError);
    await expect(backend.read(foreign, 0, new Uint8Array(1))).rejects.toThrow(BackendError);
    expect(() => backend.view(foreign)).toThrow(BackendError);
    expect(() => backend.free(foreign)).toThrow(BackendError);
  });
});

describe('errors of ranges, sizes and ops', () => {
  it('byte ranges outside a buffer', async () => {
    const backend = createReferenceBackend();
    const buffer = backend.allocate({ sizeBytes: 8, usage: 'kv', label: 'cache' });
    await backend.write(buffer, 6, Uint8Array.of(1, 2));
    await backend.write(buffer, 8, new Uint8Array(0));
    for (const offset of [7, -1, 0.5, NaN]) {
      await expect(backend.write(buffer, offset, new Uint8Array(2)), String(offset)).rejects.toThrow(ArgumentError);
      await expect(backend.read(buffer, offset, new Uint8Array(2)), String(offset)).rejects.toThrow(ArgumentError);
    }
    const bytes = new Uint8Array(8);
    await backend.read(buffer, 0, bytes);
    expect([...bytes]).toEqual([0, 0, 0, 0, 0, 0, 1, 2]);
    expect(backend.view(buffer)).toEqual(bytes);
  });

  it('sizes beyond any memory', () => {
    const backend = createReferenceBackend();
    const options = { usage: 'kv', label: 'the moon' } as const;
    expect(() => backend.allocate({ sizeBytes: 2 ** 50, ...options })).toThrow(CapacityError);
    for (const sizeBytes of [-1, 1.5, NaN]) {
      expect(() => backend.allocate({ sizeBytes, ...options })).toThrow(ArgumentError);
    }
  });

  it('unknown ops and dtypes', () => {
    const backend = createReferenceBackend();
    const supports = (op: string, dtypes: Parameters<Backend['supports']>[1]['dtypes']): boolean =>
      backend.supports(op, { dtypes, attributes: {} }).supported;
    expect(supports('matmul', { weight: 'q4_K' })).toBe(true);
    expect(supports('matmul', { weight: 'i8' })).toBe(false);
    expect(supports('kv-append', { keys: 'q8_0' })).toBe(true);
    expect(supports('kv-append', { keys: 'q4_K' })).toBe(false);
    expect(supports('mat-mul', {})).toBe(false);
  });
});

describe('release', () => {
  it('of a buffer invalidates executables bound to it', async () => {
    const backend = createReferenceBackend();
    const program = sums(1);
    const { executable, table } = await prepare(backend, program);
    backend.free(table);
    await expect(executable.run(scalarsOf(program, [1]))).rejects.toThrow(ReleasedError);
    await expect(backend.prepare(program, { buffers: new Map([['table', table]]) })).rejects.toThrow(ReleasedError);
    expect(() => backend.free(table)).toThrow(ReleasedError);
    expect(() => backend.view(table)).toThrow(ReleasedError);
    await expect(backend.write(table, 0, new Uint8Array(1))).rejects.toThrow(ReleasedError);
  });

  it('of an executable ends its use, also in the middle of a run', async () => {
    const program = sums(4, 'stop');
    const { executable } = await prepare(createReferenceBackend(), program);
    const run = executable.run(scalarsOf(program, [1]), { onBoundary: () => executable.dispose() });
    await expect(run).rejects.toThrow(ReleasedError);
    await expect(executable.run(scalarsOf(program, [1]))).rejects.toThrow(ReleasedError);
    await expect(executable.read('y', new Float32Array(1))).rejects.toThrow(ReleasedError);
    await executable.dispose();
  });

  it('of the backend releases everything', async () => {
    const backend = createReferenceBackend();
    const program = sums(1);
    const { executable, table } = await prepare(backend, program);
    await backend.dispose();
    await backend.dispose();
    await expect(executable.run(scalarsOf(program, [1]))).rejects.toThrow(ReleasedError);
    expect(() => backend.allocate({ sizeBytes: 1, usage: 'kv', label: 'x' })).toThrow(ReleasedError);
    expect(() => backend.view(table)).toThrow(ReleasedError);
    await expect(backend.prepare(program, { buffers: new Map([['table', table]]) })).rejects.toThrow(ReleasedError);
  });
});

describe('profile', () => {
  it('sums time, flops and bytes of each record with the sizes of each run', async () => {
    const b = new ProgramBuilder({ T: 3 });
    const table = b.external('table', 'weights', 'f32', [5, width]);
    const x = b.activation('embedding-lookup', { table, tokens: b.scalar('tokens', ['T']) });
    b.setLayer(2);
    b.output('y', b.activation('matmul', { x, weight: b.rows(table, 0, 2) }));
    const program = b.build();
    const { executable } = await prepare(createReferenceBackend(fakeHost(1).host), program, { profile: true });
    await executable.run(scalarsOf(program, [1, 2, 3]));
    await executable.run(scalarsOf(program, [1]));
    const [lookup, matmul] = executable.profile();
    expect(lookup).toMatchObject({ op: 'embedding-lookup', layer: -1, numRuns: 2, flops: 4 * width });
    // rows of the table, tokens and results
    expect(lookup.bytes).toBe(4 * (3 + 1) * (2 * width + 1));
    // 2 T I O operations; T I + O I + T O values of 4 bytes
    expect(matmul).toEqual({
      op: 'matmul',
      layer: 2,
      numRuns: 2,
      timeMs: 2,
      flops: 2 * width * 2 * (3 + 1),
      bytes: 4 * ((3 + 1) * width + 2 * (2 * width) + (3 + 1) * 2),
    });
  });

  it('counts the cache rows of the block table, in their dtype', () => {
    const shapes = { q: [2, 4, 32], keys: [100, 2, 8, 32], values: [100, 2, 8, 64], blockTable: [3, 5] };
    const bytes = opSpec('attention').bytes?.(shapes, {}, { keys: 'q8_0', values: 'f16' });
    const numSlots = 3 * 5 * 8;
    const cache = numSlots * 2 * (34 + 128) + numSlots * 4;
    expect(bytes).toBe(cache + 4 * (2 * 4 * (32 + 64) + 2 * 2 + 3 * 6));
  });

  it('is empty unless requested', async () => {
    const program = sums(1);
    const { executable } = await prepare(createReferenceBackend(), program);
    await executable.run(scalarsOf(program, [1]));
    expect(executable.profile()).toEqual([]);
  });
});

describe('profile of merges', () => {
  it('counts every part of a merge', async () => {
    const b = new ProgramBuilder({});
    const external = (name: string, ...shape: number[]) => b.external(name, 'weights', 'f32', shape);
    const { o } = b.append('attention-merge', {
      m: external('m', 3, 2, 1),
      l: external('l', 3, 2, 1),
      o: external('o', 3, 2, 1, 8),
      ...{
        m2: external('m2', 1, 2, 1),
        l2: external('l2', 1, 2, 1),
        o2: external('o2', 1, 2, 1, 8),
      },
    });
    b.output('o', o);
    const program = b.build();
    const backend = createReferenceBackend();
    const buffers = new Map(
      program.buffers
        .slice(2)
        .map(({ name, sizeBytes }) => [name, backend.allocate({ sizeBytes, usage: 'weights', label: name })]),
    );
    const executable = await backend.prepare(program, { buffers, profile: true });
    await executable.run(new Int32Array(0));
    expect(executable.profile()[0]).toMatchObject({ flops: 3 * 4 * 16, bytes: 4 * (4 * 2 * 10 + 2 * 10) });
  });
});
