import { describe, expect, it } from 'vitest';
import { npyFile } from './npy.js';

/** Reads a .npy file: numpy.org/doc/stable/reference/generated/numpy.lib.format.html */
function parse(file: Uint8Array): { fields: string; dataBegin: number; values: number[] } {
  const bytes = Buffer.from(file);
  expect([...bytes.subarray(0, 8)]).toEqual([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0]);
  const dataBegin = 10 + bytes.readUInt16LE(8);
  const values = Array.from({ length: (bytes.length - dataBegin) / 4 }, (_, i) => bytes.readFloatLE(dataBegin + 4 * i));
  return { fields: bytes.toString('latin1', 10, dataBegin), dataBegin, values };
}

describe('npyFile', () => {
  it('writes rows in order', () => {
    const { fields, dataBegin, values } = parse(npyFile([Float32Array.of(1, -2.5), Float32Array.of(3, 0)], 2));
    expect(fields).toMatch(/^\{'descr': '<f4', 'fortran_order': False, 'shape': \(2, 2\), \} *\n$/);
    expect(dataBegin % 64).toBe(0);
    expect(values).toEqual([1, -2.5, 3, 0]);
  });

  it('writes a view of a larger buffer, and zero rows', () => {
    const whole = Float32Array.of(9, 8, 7, 6);
    expect(parse(npyFile([whole.subarray(1, 3)], 2)).values).toEqual([8, 7]);
    const { fields, values } = parse(npyFile([], 384));
    expect(fields).toContain('(0, 384)');
    expect(values).toEqual([]);
  });

  it.each([1, 7, 10, 1e9])('keeps the data aligned with %d columns', (numColumns) => {
    expect(parse(npyFile([], numColumns)).dataBegin % 64).toBe(0);
  });
});
