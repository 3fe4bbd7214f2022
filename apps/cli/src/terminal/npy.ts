/** Writes matrices of 32-bit floats in NumPy's `.npy` format, version 1.0. */
import { endianness } from 'node:os';

/** Header and data begin at multiples of this many bytes. */
const alignment = 64;
const fixedBytes = 10;

/** The file contents of a matrix `[rows.length, numColumns]`. */
export function npyFile(rows: readonly Float32Array[], numColumns: number): Uint8Array {
  const header = npyHeader(rows.length, numColumns);
  const file = Buffer.alloc(header.length + 4 * rows.length * numColumns);
  file.set(header);
  rows.forEach((row, index) => {
    file.set(encodeNpyRow(row), header.length + 4 * index * numColumns);
  });
  return file;
}

export function npyHeader(numRows: number, numColumns: number): Uint8Array {
  const fields = `{'descr': '<f4', 'fortran_order': False, 'shape': (${numRows}, ${numColumns}), }`;
  const length = Math.ceil((fixedBytes + fields.length + 1) / alignment) * alignment;
  const header = Buffer.alloc(length, ' ');
  header.write('\x93NUMPY\x01\x00', 'latin1');
  header.writeUInt16LE(length - fixedBytes, 8);
  header.write(fields, fixedBytes, 'latin1');
  header.write('\n', length - 1, 'latin1');
  return header;
}

/** A row after the header and the rows before it. */
export function encodeNpyRow(values: Float32Array): Uint8Array {
  const bytes = Buffer.from(values.buffer, values.byteOffset, values.byteLength);
  return endianness() === 'LE' ? bytes : Buffer.from(bytes).swap32();
}
