import { ArgumentError, ShapeError } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { randomProgram } from '../../test/random-program.js';
import { ProgramBuilder, type ProgramTensor } from './program-builder.js';
import { arenaBufferIndex, type Program } from './program.js';
import { validateProgram } from './validate-program.js';

/** A builder with an activation `x` of `[T, 16]`, T up to 4: 256 bytes. */
function start(): {
  b: ProgramBuilder;
  x: ProgramTensor;
  weight: ProgramTensor;
  norm: (x: ProgramTensor) => ProgramTensor;
} {
  const b = new ProgramBuilder({ T: 4 });
  const table = b.external('table', 'weights', 'f32', [10, 16]);
  const x = b.activation('embedding-lookup', { table, tokens: b.scalar('tokens', ['T']) });
  const weight = b.external('norm', 'weights', 'f32', [16]);
  return { b, x, weight, norm: (x) => b.activation('rms-norm', { x, weight }, { eps: 1e-6 }) };
}

const arenaBytes = ({ buffers }: Program): number => buffers[arenaBufferIndex].sizeBytes;
const offsetOf = (program: Program, record: number, output = 'y'): number =>
  program.records[record].outputs[output].byteOffset;

describe('memory reuse', () => {
  it('runs a chain of pointwise ops in place', () => {
    const { b, x, norm } = start();
    let y = x;
    for (let i = 0; i < 5; i++) y = norm(y);
    b.output('y', y);
    const program = b.build();
    expect(arenaBytes(program)).toBe(256);
    expect(program.peakBytes).toBe(256 + (1 + 4) * 4);
    validateProgram(program);
  });

  it('keeps a tensor that is read later', () => {
    const { b, x, norm } = start();
    const y = norm(x);
    b.output('sum', b.activation('add', { a: y, b: x }));
    const program = b.build();
    expect(offsetOf(program, 1)).not.toBe(offsetOf(program, 0));
    expect(offsetOf(program, 2)).toBe(offsetOf(program, 1)); // the sum reuses the memory of y
    expect(arenaBytes(program)).toBe(512);
    validateProgram(program);
  });

  it('keeps a tensor that the host reads', () => {
    const { b, x, norm } = start();
    b.output('x', x);
    b.output('y', norm(x));
    expect(arenaBytes(b.build())).toBe(512);
    validateProgram(b.build());
  });

  it('does not overwrite an input that the record reads twice', () => {
    const { b, x } = start();
    b.output('double', b.activation('add', { a: x, b: x }));
    const program = b.build();
    expect(offsetOf(program, 1)).not.toBe(offsetOf(program, 0));
    validateProgram(program);
  });
});

describe('memory after a reshape or a second build', () => {
  it('overwrites a reshaped tensor in place, but not a part of a tensor', () => {
    const { b, x, norm } = start();
    b.output('y', norm(b.reshape(x, ['T', 1, 16])));
    expect(arenaBytes(b.build())).toBe(256);

    const c = new ProgramBuilder({});
    const table = c.external('table', 'weights', 'f32', [10, 16]);
    const rows = c.activation('gather-rows', { x: table, rows: c.scalar('rows', [4]) });
    c.output('y', c.activation('softmax', { x: c.rows(rows, 1, 4) }));
    const program = c.build();
    expect(program.records[1].inputs['x'].byteOffset).toBe(offsetOf(program, 0) + 64);
    expect(arenaBytes(program)).toBe(256 + 192);
    validateProgram(program);
  });

  it('builds again after more was appended', () => {
    const { b, x, norm } = start();
    const y = norm(x);
    b.output('y', y);
    const first = b.build();
    expect(b.build()).toEqual(first);
    const z = norm(y);
    b.output('sum', b.activation('add', { a: z, b: y }));
    const second = b.build();
    validateProgram(second);
    expect(second.records).toHaveLength(4);
    expect(first.records).toHaveLength(2);
    expect(first.scalars.slots.has('later')).toBe(false);
    b.scalar('later', [3]);
    expect(second.scalars.slots.has('later')).toBe(false);
  });

  it('extends the lifetime of a tensor whose memory was reused when it is read after a second build', () => {
    const { b, x, norm } = start();
    const y = norm(x); // reuses the memory of x
    b.build();
    const z = norm(y);
    const sum = b.activation('add', { a: z, b: y });
    b.output('sum', sum);
    const program = b.build();
    expect(offsetOf(program, 2)).not.toBe(offsetOf(program, 1));
    validateProgram(program);
  });
});

describe('names of tensors', () => {
  it('returns the same tensor for an equal declaration and rejects a different one', () => {
    const { b, weight } = start();
    expect(b.external('norm', 'weights', 'f32', [16])).toBe(weight);
    expect(() => b.external('norm', 'weights', 'f32', [17])).toThrow(ShapeError);
    expect(() => b.external('norm', 'weights', 'f16', [16])).toThrow('expected weights f32 [16], got weights f16 [16]');
    expect(() => b.external('norm', 'kv', 'f32', [16])).toThrow(ShapeError);
  });

  it('rejects a second scalar or output with the same name', () => {
    const { b, x } = start();
    expect(() => b.scalar('tokens', [1])).toThrow(ArgumentError);
    expect(() => b.scalar('T', [])).toThrow(ArgumentError);
    b.output('x', x);
    expect(() => b.output('x', x)).toThrow(ArgumentError);
    expect(() => b.output('tokens', b.scalar('more', [1]))).toThrow('expected a computed tensor, got a scalar');
  });
});

describe('shapes and rows of tensors', () => {
  it('rejects symbols without capacity and invalid capacities', () => {
    expect(() => new ProgramBuilder({ T: -1 })).toThrow(ArgumentError);
    expect(() => new ProgramBuilder({ T: 1.5 })).toThrow(ArgumentError);
    expect(() => new ProgramBuilder({ T: 2 ** 31 })).toThrow(ArgumentError);
    const b = new ProgramBuilder({ T: 3 });
    expect(b.capacity('T')).toBe(3);
    expect(() => b.scalar('x', ['Q'])).toThrow('symbol: expected T, got Q');
    expect(() => b.scalar('x', [-1])).toThrow(ShapeError);
    expect(() => b.external('w', 'weights', 'f32', [1.5])).toThrow(ShapeError);
    expect(() => b.external('w', 'weights', 'q4_0', [2, 33])).toThrow(ShapeError);
  });

  it('reshapes only to an equal number of elements for any value of the symbols', () => {
    const { b, x } = start();
    expect(b.reshape(x, ['T', 4, 4]).shape).toEqual(['T', 4, 4]);
    expect(b.reshape(x, [2, 'T', 8]).shape).toEqual([2, 'T', 8]);
    for (const shape of [['T', 15], [4, 16], ['T', 'T'], [16], ['T', 0.5, 32]]) {
      expect(() => b.reshape(x, shape), String(shape)).toThrow(ShapeError);
    }
    const packed = b.external('packed', 'weights', 'q8_0', [2, 64]);
    expect(b.reshape(packed, [4, 32]).shape).toEqual([4, 32]);
    expect(() => b.reshape(packed, [8, 16])).toThrow('reshape: rows of q8_0, expected a multiple of 32, got [8, 16]');
  });

  it('addresses rows by their first byte', () => {
    const { b, x } = start();
    const packed = b.external('packed', 'weights', 'q4_K', [6, 512]);
    const rows = b.rows(b.rows(packed, 1, 6), 2, 4);
    expect([rows.shape, rows.byteOffset]).toEqual([[2, 512], 3 * 288]);
    expect(b.rows(packed, 6, 6).shape).toEqual([0, 512]);
    for (const [begin, end] of [
      [-1, 2],
      [3, 2],
      [0, 7],
      [0.5, 2],
      [0, NaN],
    ]) {
      expect(() => b.rows(packed, begin, end), `${begin} to ${end}`).toThrow(ShapeError);
    }
    expect(() => b.rows(x, 0, 1)).toThrow(ShapeError); // a symbol is not a fixed axis
  });

  it('rejects tensors of another builder', () => {
    const { b } = start();
    const other = start();
    expect(() => b.activation('softmax', { x: other.x })).toThrow('expected tensors of this builder');
    expect(() => b.output('x', other.x)).toThrow(ArgumentError);
    expect(() => b.reshape(other.x, ['T', 16])).toThrow(ArgumentError);
    expect(() => b.rows(other.weight, 0, 1)).toThrow(ArgumentError);
  });
});

describe('updates', () => {
  const tensors = (b: ProgramBuilder, usage: 'weights' | 'kv'): Record<string, ProgramTensor> => ({
    k: b.external('k', 'weights', 'f32', [2, 1, 4]),
    slots: b.scalar('slots', [2]),
    keys: b.external('keys', usage, 'f32', [3, 1, 2, 4]),
    values: b.external('values', usage, 'f32', [3, 1, 2, 4]),
  });

  it('target kv memory of the caller', () => {
    const b = new ProgramBuilder({});
    const { k, slots, keys, values } = tensors(b, 'kv');
    expect(b.append('kv-append', { k, v: k, slots }, {}, { keys, values })).toEqual({ keys, values });
    expect(() => b.append('kv-append', { k, v: k, slots }, {}, { keys, values: keys })).toThrow(ArgumentError);
    const both = b.external('both', 'kv', 'f32', [6, 1, 2, 4]);
    const [low, high] = [b.rows(both, 0, 3), b.rows(both, 3, 6)];
    b.append('kv-append', { k, v: k, slots }, {}, { keys: low, values: high });
    expect(() => b.append('kv-append', { k, v: k, slots }, {}, { keys: low, values: b.rows(both, 2, 5) })).toThrow(
      'separate memory',
    );
    validateProgram(b.build());
  });

  it('are rejected in weights and scalars', () => {
    const b = new ProgramBuilder({});
    const { k, slots, keys, values } = tensors(b, 'weights');
    expect(() => b.append('kv-append', { k, v: k, slots }, {}, { keys, values })).toThrow('got weights memory');
    const positions = b.scalar('positions', [2]);
    const slotPositions = b.scalar('slotPositions', [3, 2]);
    expect(() => b.append('position-append', { slots, positions }, {}, { slotPositions })).toThrow(
      'got scalars memory',
    );
  });
});

describe('records', () => {
  it('carry their layer, and segments end at boundaries', () => {
    const { b, x, norm } = start();
    b.setLayer(3);
    const y = norm(x);
    b.boundary('first');
    b.boundary('empty');
    b.setLayer(-1);
    b.output('z', norm(y));
    b.boundary('last');
    const program = b.build();
    expect(program.records.map(({ op, layer }) => [op, layer])).toEqual([
      ['embedding-lookup', -1],
      ['rms-norm', 3],
      ['rms-norm', -1],
    ]);
    expect(program.segments).toEqual([
      { begin: 0, end: 2, boundary: 'first' },
      { begin: 2, end: 2, boundary: 'empty' },
      { begin: 2, end: 3, boundary: 'last' },
      { begin: 3, end: 3, boundary: undefined },
    ]);
  });

  it('`activation` requires exactly one output', () => {
    const { b, x } = start();
    expect(() => b.activation('top-k', { x }, { k: 2 })).toThrow(
      'top-k: expected an op with one output, got 2 outputs',
    );
    expect(() => b.append('no-such-op', {})).toThrow('no-such-op');
  });
});

describe('random programs', () => {
  it('are valid and smaller than without memory reuse', () => {
    for (let seed = 1; seed <= 60; seed++) {
      const program = randomProgram(seed, 3 + (seed % 25));
      expect(() => validateProgram(program), `seed ${seed}`).not.toThrow();
      expect(program.peakBytes).toBe(program.buffers[0].sizeBytes + program.buffers[1].sizeBytes);
    }
    expect(arenaBytes(randomProgram(1, 200))).toBeLessThan(20 * arenaBytes(randomProgram(1, 4)));
  });
});
