/**
 * Unpacking of the 32-value blocks with one scale: q4_0 q4_1 q5_0 q5_1 q8_0 q8_1, iq4_nl and mxfp4.
 * Formula: value = d * code, or d * code + m. With an f16 scale and codes of at most 8 bits, d * code is exact in
 * float64 and so is the sum, hence storing it to float32 rounds once, exactly as float32 arithmetic does.
 * Source of the layouts: https://github.com/ggml-org/llama.cpp/blob/4bfb31880dac521bede6e244260cfe44c31a27e3/gguf-py/gguf/quants.py
 */
import { halfTable } from '../half.js';
import { iq4Values } from './iq4-values.js';
import type { Decoder } from './signatures.js';

/** 16 bytes of nibbles: the low ones are values 0..15, the high ones 16..31. */
export const decodeQ4_0: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  const halves = halfTable();
  const end = outOffset + numValues;
  for (let at = byteOffset, to = outOffset; to < end; at += 18, to += 32) {
    const d = halves[bytes[at] | (bytes[at + 1] << 8)];
    for (let i = 0; i < 16; i++) {
      const code = bytes[at + 2 + i];
      out[to + i] = d * ((code & 15) - 8);
      out[to + 16 + i] = d * ((code >> 4) - 8);
    }
  }
};

export const decodeQ4_1: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  const halves = halfTable();
  const end = outOffset + numValues;
  for (let at = byteOffset, to = outOffset; to < end; at += 20, to += 32) {
    const d = halves[bytes[at] | (bytes[at + 1] << 8)];
    const m = halves[bytes[at + 2] | (bytes[at + 3] << 8)];
    for (let i = 0; i < 16; i++) {
      const code = bytes[at + 4 + i];
      out[to + i] = d * (code & 15) + m;
      out[to + 16 + i] = d * (code >> 4) + m;
    }
  }
};

/** The fifth bits of all 32 values come first, as one little-endian word. */
export const decodeQ5_0: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  const halves = halfTable();
  const end = outOffset + numValues;
  for (let at = byteOffset, to = outOffset; to < end; at += 22, to += 32) {
    const d = halves[bytes[at] | (bytes[at + 1] << 8)];
    const high = bytes[at + 2] | (bytes[at + 3] << 8) | (bytes[at + 4] << 16) | (bytes[at + 5] << 24);
    for (let i = 0; i < 16; i++) {
      const code = bytes[at + 6 + i];
      out[to + i] = d * (((code & 15) | (((high >>> i) & 1) << 4)) - 16);
      out[to + 16 + i] = d * (((code >> 4) | (((high >>> (16 + i)) & 1) << 4)) - 16);
    }
  }
};

export const decodeQ5_1: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  const halves = halfTable();
  const end = outOffset + numValues;
  for (let at = byteOffset, to = outOffset; to < end; at += 24, to += 32) {
    const d = halves[bytes[at] | (bytes[at + 1] << 8)];
    const m = halves[bytes[at + 2] | (bytes[at + 3] << 8)];
    const high = bytes[at + 4] | (bytes[at + 5] << 8) | (bytes[at + 6] << 16) | (bytes[at + 7] << 24);
    for (let i = 0; i < 16; i++) {
      const code = bytes[at + 8 + i];
      out[to + i] = d * ((code & 15) | (((high >>> i) & 1) << 4)) + m;
      out[to + 16 + i] = d * ((code >> 4) | (((high >>> (16 + i)) & 1) << 4)) + m;
    }
  }
};

export const decodeQ8_0: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  const halves = halfTable();
  const end = outOffset + numValues;
  for (let at = byteOffset, to = outOffset; to < end; at += 34, to += 32) {
    const d = halves[bytes[at] | (bytes[at + 1] << 8)];
    for (let i = 0; i < 32; i++) out[to + i] = d * ((bytes[at + 2 + i] << 24) >> 24);
  }
};

/** Like q8_0, with the block sum (times d) as a second half, which does not enter the values. */
export const decodeQ8_1: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  const halves = halfTable();
  const end = outOffset + numValues;
  for (let at = byteOffset, to = outOffset; to < end; at += 36, to += 32) {
    const d = halves[bytes[at] | (bytes[at + 1] << 8)];
    for (let i = 0; i < 32; i++) out[to + i] = d * ((bytes[at + 4 + i] << 24) >> 24);
  }
};

export const decodeIq4Nl: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  const halves = halfTable();
  const end = outOffset + numValues;
  for (let at = byteOffset, to = outOffset; to < end; at += 18, to += 32) {
    const d = halves[bytes[at] | (bytes[at + 1] << 8)];
    for (let i = 0; i < 16; i++) {
      const code = bytes[at + 2 + i];
      out[to + i] = d * iq4Values[code & 15];
      out[to + 16 + i] = d * iq4Values[code >> 4];
    }
  }
};

// The E2M1 numbers of the OCP Microscaling specification v1.0 §5.3.3, doubled to be integers. Code 8 is +0 here.
export const doubledE2m1: Int8Array = new Int8Array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]);

/** One E8M0 exponent byte: the scale is 2^(byte - 127), halved because the codes are doubled. */
export const decodeMxfp4: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  const end = outOffset + numValues;
  for (let at = byteOffset, to = outOffset; to < end; at += 17, to += 32) {
    const d = 2 ** (bytes[at] - 128);
    for (let i = 0; i < 16; i++) {
      const code = bytes[at + 1 + i];
      out[to + i] = d * doubledE2m1[code & 15];
      out[to + 16 + i] = d * doubledE2m1[code >> 4];
    }
  }
};
