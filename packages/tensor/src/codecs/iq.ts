/**
 * Unpacking of the code-book formats iq2_xxs iq2_xs iq2_s iq3_xxs iq3_s iq1_s iq1_m: 256-value super-blocks whose codes
 * name vectors of 4 or 8 elements, with separate signs and sub-block scales. A scale has at most 16 significant bits
 * and an element six, so every product is exact and float64 arithmetic gives the float32 result.
 * Source of the layouts:
 * https://github.com/ggml-org/llama.cpp/blob/4bfb31880dac521bede6e244260cfe44c31a27e3/gguf-py/gguf/quants.py
 */
import { halfTable } from '../half.js';
import { iq1Grid, iq2SGrid, iq2XsGrid, iq2XxsGrid, iq3SGrid, iq3XxsGrid } from './iq-grids.js';
import type { Decoder } from './signatures.js';

/** Seven stored sign bits; the eighth makes the parity even. */
function evenSigns(seven: number): number {
  let parity = seven ^ (seven >> 4);
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return seven | ((parity & 1) << 7);
}

/** Writes `scale * grid[vector ...]`, negated where the bit of `signs` is set. */
function writeSigned(
  grid: Int8Array,
  vector: number,
  length: number,
  signs: number,
  scale: number,
  out: Float32Array,
  to: number,
): void {
  for (let i = 0; i < length; i++) {
    const value = scale * grid[vector + i];
    out[to + i] = ((signs >> i) & 1) === 0 ? value : -value;
  }
}

function uint16At(bytes: Uint8Array, at: number): number {
  return bytes[at] | (bytes[at + 1] << 8);
}

/** [d][8 times: 4 code bytes, then a word of four 7-bit sign groups below a 4-bit scale]. */
export const decodeIq2Xxs: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  const halves = halfTable();
  const grid = iq2XxsGrid();
  const end = outOffset + numValues;
  for (let at = byteOffset, to = outOffset; to < end; at += 66, to += 256) {
    const d = halves[uint16At(bytes, at)];
    for (let sub = 0; sub < 8; sub++) {
      const codes = at + 2 + sub * 8;
      const word = uint16At(bytes, codes + 4) | (uint16At(bytes, codes + 6) << 16);
      const scale = d * (0.5 + (word >>> 28)) * 0.25;
      for (let group = 0; group < 4; group++) {
        const signs = evenSigns((word >>> (group * 7)) & 127);
        writeSigned(grid, bytes[codes + group] * 8, 8, signs, scale, out, to + sub * 32 + group * 8);
      }
    }
  }
};

/** [d][32 words of 9 code bits below 7 sign bits][8 bytes of 16 4-bit scales]. */
export const decodeIq2Xs: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  const halves = halfTable();
  const grid = iq2XsGrid();
  const end = outOffset + numValues;
  for (let at = byteOffset, to = outOffset; to < end; at += 74, to += 256) {
    const d = halves[uint16At(bytes, at)];
    for (let group = 0; group < 32; group++) {
      const word = uint16At(bytes, at + 2 + group * 2);
      const code = (bytes[at + 66 + (group >> 2)] >> ((group & 2) * 2)) & 15;
      const scale = d * (0.5 + code) * 0.25;
      writeSigned(grid, (word & 511) * 8, 8, evenSigns(word >> 9), scale, out, to + group * 8);
    }
  }
};

/** [d][32 low code bytes][32 sign bytes][8 bytes of 32 high code bit pairs][8 bytes of 16 4-bit scales]. */
export const decodeIq2S: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  const halves = halfTable();
  const grid = iq2SGrid();
  const end = outOffset + numValues;
  for (let at = byteOffset, to = outOffset; to < end; at += 82, to += 256) {
    const d = halves[uint16At(bytes, at)];
    for (let group = 0; group < 32; group++) {
      const high = (bytes[at + 66 + (group >> 2)] >> ((group & 3) * 2)) & 3;
      const vector = bytes[at + 2 + group] | (high << 8);
      const code = (bytes[at + 74 + (group >> 2)] >> ((group & 2) * 2)) & 15;
      const scale = d * (0.5 + code) * 0.25;
      writeSigned(grid, vector * 8, 8, bytes[at + 34 + group], scale, out, to + group * 8);
    }
  }
};

/** [d][64 code bytes][8 words of four 7-bit sign groups below a 4-bit scale]. */
export const decodeIq3Xxs: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  const halves = halfTable();
  const grid = iq3XxsGrid();
  const end = outOffset + numValues;
  for (let at = byteOffset, to = outOffset; to < end; at += 98, to += 256) {
    const d = halves[uint16At(bytes, at)];
    for (let sub = 0; sub < 8; sub++) {
      const words = at + 66 + sub * 4;
      const word = uint16At(bytes, words) | (uint16At(bytes, words + 2) << 16);
      const scale = d * (0.5 + (word >>> 28)) * 0.5;
      for (let group = 0; group < 4; group++) {
        const signs = evenSigns((word >>> (group * 7)) & 127);
        const codes = at + 2 + sub * 8 + group * 2;
        const first = to + sub * 32 + group * 8;
        writeSigned(grid, bytes[codes] * 4, 4, signs, scale, out, first);
        writeSigned(grid, bytes[codes + 1] * 4, 4, signs >> 4, scale, out, first + 4);
      }
    }
  }
};

/** [d][64 low code bytes][8 bytes of 64 high code bits][32 sign bytes][4 bytes of 8 4-bit scales]. */
export const decodeIq3S: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  const halves = halfTable();
  const grid = iq3SGrid();
  const end = outOffset + numValues;
  for (let at = byteOffset, to = outOffset; to < end; at += 110, to += 256) {
    const d = halves[uint16At(bytes, at)];
    for (let group = 0; group < 64; group++) {
      const vector = bytes[at + 2 + group] | (((bytes[at + 66 + (group >> 3)] >> (group & 7)) & 1) << 8);
      const signs = bytes[at + 74 + (group >> 1)] >> ((group & 1) * 4);
      const sub = group >> 3;
      const code = (bytes[at + 106 + (sub >> 1)] >> ((sub & 1) * 4)) & 15;
      writeSigned(grid, vector * 4, 4, signs, d * (1 + 2 * code), out, to + group * 4);
    }
  }
};

/** The offset that iq1 adds to every element of a vector. */
const iq1Shift = 0.125;

function writeShifted(
  grid: Int8Array,
  vector: number,
  shift: number,
  scale: number,
  out: Float32Array,
  to: number,
): void {
  for (let i = 0; i < 8; i++) out[to + i] = scale * (grid[vector + i] + shift);
}

/** [d][32 low code bytes][8 words: four 3-bit high code parts, a 3-bit scale, the sign of the shift]. */
export const decodeIq1S: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  const halves = halfTable();
  const grid = iq1Grid();
  const end = outOffset + numValues;
  for (let at = byteOffset, to = outOffset; to < end; at += 50, to += 256) {
    const d = halves[uint16At(bytes, at)];
    for (let group = 0; group < 32; group++) {
      const word = uint16At(bytes, at + 34 + (group >> 2) * 2);
      const vector = bytes[at + 2 + group] | (((word >> ((group & 3) * 3)) & 7) << 8);
      const shift = (word & 0x8000) === 0 ? iq1Shift : -iq1Shift;
      writeShifted(grid, vector * 8, shift, d * (2 * ((word >> 12) & 7) + 1), out, to + group * 8);
    }
  }
};

/**
 * [32 low code bytes][16 bytes of 32 nibbles: 3 high code bits and the sign of the shift][4 words of four 3-bit scales
 * below four bits of d each, lowest bits in the first word].
 */
export const decodeIq1M: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  const halves = halfTable();
  const grid = iq1Grid();
  const end = outOffset + numValues;
  for (let at = byteOffset, to = outOffset; to < end; at += 56, to += 256) {
    const scales = at + 48;
    const d =
      halves[
        (bytes[scales + 1] >> 4) |
          (bytes[scales + 3] & 0xf0) |
          ((bytes[scales + 5] & 0xf0) << 4) |
          ((bytes[scales + 7] & 0xf0) << 8)
      ];
    for (let group = 0; group < 32; group++) {
      const nibble = bytes[at + 32 + (group >> 1)] >> ((group & 1) * 4);
      const vector = bytes[at + group] | ((nibble & 7) << 8);
      const shift = (nibble & 8) === 0 ? iq1Shift : -iq1Shift;
      // A scale covers two groups; a word holds four scales.
      const code = (uint16At(bytes, scales + (group >> 3) * 2) >> (((group >> 1) & 3) * 3)) & 7;
      writeShifted(grid, vector * 8, shift, d * (2 * code + 1), out, to + group * 8);
    }
  }
};
