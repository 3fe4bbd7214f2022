/** Plain numbers, little-endian at any byte offset. Integers are rounded to nearest even and clamped; NaN becomes 0. */
import { halfTable, roundToBfloat16, roundToHalf } from '../half.js';
import type { Decoder, Encoder } from './signatures.js';

const floatScratch = new Float32Array(1);
const bitScratch = new Uint32Array(floatScratch.buffer);
const doubleScratch = new Float64Array(1);
const doubleBytes = new Uint8Array(doubleScratch.buffer);
const hostIsLittleEndian: boolean = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1;

/** Below this many values a loop is faster than creating the two views of a block copy. */
const minBlockCopy = 32;

function uint32At(bytes: Uint8Array, offset: number): number {
  return (bytes[offset] | (bytes[offset + 1] << 8) | (bytes[offset + 2] << 16) | (bytes[offset + 3] << 24)) >>> 0;
}

function writeUint16(bytes: Uint8Array, offset: number, value: number): void {
  bytes[offset] = value;
  bytes[offset + 1] = value >>> 8;
}

function writeUint32(bytes: Uint8Array, offset: number, value: number): void {
  writeUint16(bytes, offset, value);
  writeUint16(bytes, offset + 2, value >>> 16);
}

function roundToInteger(value: number, min: number, max: number): number {
  if (Number.isNaN(value)) return 0;
  if (value <= min) return min;
  if (value >= max) return max;
  const floor = Math.floor(value);
  const rest = value - floor;
  return rest > 0.5 || (rest === 0.5 && floor % 2 !== 0) ? floor + 1 : floor;
}

export const decodeF32: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  if (hostIsLittleEndian && numValues >= minBlockCopy) {
    const target = new Uint8Array(out.buffer, out.byteOffset + outOffset * 4, numValues * 4);
    target.set(bytes.subarray(byteOffset, byteOffset + numValues * 4));
    return;
  }
  for (let i = 0; i < numValues; i++) {
    bitScratch[0] = uint32At(bytes, byteOffset + i * 4);
    out[outOffset + i] = floatScratch[0];
  }
};

export const encodeF32: Encoder = (values, valueOffset, out, byteOffset, numValues) => {
  if (hostIsLittleEndian && numValues >= minBlockCopy) {
    out.set(new Uint8Array(values.buffer, values.byteOffset + valueOffset * 4, numValues * 4), byteOffset);
    return;
  }
  for (let i = 0; i < numValues; i++) {
    floatScratch[0] = values[valueOffset + i];
    writeUint32(out, byteOffset + i * 4, bitScratch[0]);
  }
};

export const decodeF16: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  const halves = halfTable();
  for (let i = 0, at = byteOffset; i < numValues; i++, at += 2) {
    out[outOffset + i] = halves[bytes[at] | (bytes[at + 1] << 8)];
  }
};

export const encodeF16: Encoder = (values, valueOffset, out, byteOffset, numValues) => {
  const bits = new Uint32Array(values.buffer, values.byteOffset + valueOffset * 4, numValues);
  for (let i = 0; i < numValues; i++) {
    writeUint16(out, byteOffset + i * 2, roundToHalf(bits[i], values[valueOffset + i]));
  }
};

export const decodeBf16: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  for (let i = 0, at = byteOffset; i < numValues; i++, at += 2) {
    bitScratch[0] = (bytes[at] << 16) | (bytes[at + 1] << 24);
    out[outOffset + i] = floatScratch[0];
  }
};

export const encodeBf16: Encoder = (values, valueOffset, out, byteOffset, numValues) => {
  const bits = new Uint32Array(values.buffer, values.byteOffset + valueOffset * 4, numValues);
  for (let i = 0; i < numValues; i++) writeUint16(out, byteOffset + i * 2, roundToBfloat16(bits[i]));
};

/** Rounds each float64 to the nearest float32. */
export const decodeF64: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  for (let i = 0; i < numValues; i++) {
    const at = byteOffset + i * 8;
    for (let byte = 0; byte < 8; byte++) doubleBytes[hostIsLittleEndian ? byte : 7 - byte] = bytes[at + byte];
    out[outOffset + i] = doubleScratch[0];
  }
};

export const encodeF64: Encoder = (values, valueOffset, out, byteOffset, numValues) => {
  for (let i = 0; i < numValues; i++) {
    const at = byteOffset + i * 8;
    doubleScratch[0] = values[valueOffset + i];
    for (let byte = 0; byte < 8; byte++) out[at + byte] = doubleBytes[hostIsLittleEndian ? byte : 7 - byte];
  }
};

export const decodeI8: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  for (let i = 0; i < numValues; i++) out[outOffset + i] = (bytes[byteOffset + i] << 24) >> 24;
};

export const encodeI8: Encoder = (values, valueOffset, out, byteOffset, numValues) => {
  for (let i = 0; i < numValues; i++) out[byteOffset + i] = roundToInteger(values[valueOffset + i], -128, 127);
};

export const decodeI16: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  for (let i = 0, at = byteOffset; i < numValues; i++, at += 2) {
    out[outOffset + i] = ((bytes[at] << 16) | (bytes[at + 1] << 24)) >> 16;
  }
};

export const encodeI16: Encoder = (values, valueOffset, out, byteOffset, numValues) => {
  for (let i = 0; i < numValues; i++) {
    writeUint16(out, byteOffset + i * 2, roundToInteger(values[valueOffset + i], -32768, 32767));
  }
};

/** Rounds to the nearest float32: beyond 2^24 not every integer is representable. */
export const decodeI32: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  for (let i = 0; i < numValues; i++) out[outOffset + i] = uint32At(bytes, byteOffset + i * 4) | 0;
};

export const encodeI32: Encoder = (values, valueOffset, out, byteOffset, numValues) => {
  for (let i = 0; i < numValues; i++) {
    writeUint32(out, byteOffset + i * 4, roundToInteger(values[valueOffset + i], -(2 ** 31), 2 ** 31 - 1));
  }
};

/** Rounds to float32 through float64, so a 64-bit integer may be off by one float32 step. */
export const decodeI64: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  for (let i = 0; i < numValues; i++) {
    const at = byteOffset + i * 8;
    out[outOffset + i] = (uint32At(bytes, at + 4) | 0) * 2 ** 32 + uint32At(bytes, at);
  }
};

export const encodeI64: Encoder = (values, valueOffset, out, byteOffset, numValues) => {
  for (let i = 0; i < numValues; i++) {
    const at = byteOffset + i * 8;
    const value = values[valueOffset + i];
    if (value >= 2 ** 63) {
      writeUint32(out, at, 0xffffffff);
      writeUint32(out, at + 4, 0x7fffffff);
      continue;
    }
    const integer = roundToInteger(value, -(2 ** 63), 2 ** 63);
    const high = Math.floor(integer / 2 ** 32);
    writeUint32(out, at, integer - high * 2 ** 32);
    writeUint32(out, at + 4, high);
  }
};
