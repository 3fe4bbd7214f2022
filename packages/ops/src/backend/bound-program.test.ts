import { ArgumentError, CapacityError, ReleasedError } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { BoundProgram, createReferenceBackend, type Backend, type BufferHandle } from '../index.js';

/** A backend that counts allocated buffers and limits their number. */
function countingBackend(maxBuffers = Infinity): { backend: Backend; live: Set<BufferHandle> } {
  const live = new Set<BufferHandle>();
  const inner = createReferenceBackend();
  const backend: Backend = {
    ...inner,
    allocate(options) {
      if (live.size >= maxBuffers) {
        throw new CapacityError({ resource: options.label, needed: 1, available: 0, unit: 'buffers' });
      }
      const buffer = inner.allocate(options);
      live.add(buffer);
      return buffer;
    },
    free(buffer) {
      inner.free(buffer);
      live.delete(buffer);
    },
  };
  return { backend, live };
}

const addRows = { symbols: { T: 2 } };

function buildAdd(b: Parameters<Parameters<typeof BoundProgram.prepare>[1]>[0]): void {
  const [x, y] = ['x', 'y'].map((name) => b.external(name, 'kv', 'f32', [2, 3]));
  b.output('sum', b.activation('add', { a: x!, b: y! }));
}

describe('BoundProgram', () => {
  it('runs repeatedly with the written data, on its own memory and on that of the caller', async () => {
    const { backend, live } = countingBackend();
    const x = backend.allocate({ sizeBytes: 24, usage: 'kv', label: 'x' });
    const program = await BoundProgram.prepare({ backend, ...addRows, buffers: new Map([['x', x]]) }, buildAdd);
    expect([program.buffer('x') === x, live.size, program.fallbacks.length]).toEqual([true, 2, 0]);
    expect(program.sizeBytes).toBeGreaterThanOrEqual(24);
    const sum = new Float32Array(6);
    for (const factor of [1, 10]) {
      await program.write('x', Float32Array.of(1, 2, 3, 4, 5, 6));
      await program.write('y', Float32Array.of(factor, factor, factor));
      await program.run();
      await program.read('sum', sum);
      expect([...sum]).toEqual([1 + factor, 2 + factor, 3 + factor, 4, 5, 6]);
    }
    await program.close();
    await program.close();
    expect([...live]).toEqual([x]);
    await expect(program.run()).rejects.toThrow(ReleasedError);
  });

  it('writes weights before the program is prepared, and rejects weights without a tensor', async () => {
    const inner = createReferenceBackend();
    const seen = new Uint8Array(24);
    const backend: Backend = {
      ...inner,
      async prepare(program, options) {
        await inner.read(options.buffers.get('y') as BufferHandle, 0, seen);
        return inner.prepare(program, options);
      },
    };
    const weights = new Map([['y', new Uint8Array(Float32Array.of(1, 2, 3, 4, 5, 6).buffer)]]);
    await using program = await BoundProgram.prepare({ backend, ...addRows, weights }, buildAdd);
    expect(seen).toEqual(weights.get('y'));
    await program.run();
    const sum = new Float32Array(6);
    await program.read('sum', sum);
    expect([...sum]).toEqual([1, 2, 3, 4, 5, 6]);
    weights.set('z', new Uint8Array(4));
    await expect(BoundProgram.prepare({ backend, ...addRows, weights }, buildAdd)).rejects.toThrow(ArgumentError);
  });

  it('frees its memory when preparing fails', async () => {
    const { backend, live } = countingBackend(1);
    await expect(BoundProgram.prepare({ backend, ...addRows }, buildAdd)).rejects.toThrow(CapacityError);
    expect(live.size).toBe(0);
  });

  it('lists the external tensors in the error for an unknown name', async () => {
    await using program = await BoundProgram.prepare({ backend: createReferenceBackend(), ...addRows }, buildAdd);
    expect(() => program.buffer('z')).toThrow(ArgumentError);
    expect(() => program.buffer('z')).toThrow('expected x | y, got z');
  });
});
