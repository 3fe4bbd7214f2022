/**
 * Unpacking of the 256-value super-blocks with sub-block scales: q2_K q3_K q4_K q5_K q6_K q8_K, and iq4_xs, which has
 * their structure. Formula: value = (d * scale) * code [- dmin * min]; both products are exact in float64, so storing
 * to float32 rounds once, as float32 arithmetic does.
 * Source of the layouts:
 * https://github.com/ggml-org/llama.cpp/blob/4bfb31880dac521bede6e244260cfe44c31a27e3/gguf-py/gguf/quants.py
 */
import { halfTable } from '../half.js';
import { iq4Values } from './iq4-values.js';
import type { Decoder } from './signatures.js';

/** [16 bytes min << 4 | scale][64 bytes of 2-bit codes][d][dmin]; 16 sub-blocks of 16 values. */
export const decodeQ2_K: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  const halves = halfTable();
  const end = outOffset + numValues;
  for (let at = byteOffset, to = outOffset; to < end; at += 84, to += 256) {
    const d = halves[bytes[at + 80] | (bytes[at + 81] << 8)];
    const dmin = halves[bytes[at + 82] | (bytes[at + 83] << 8)];
    for (let sub = 0; sub < 16; sub++) {
      const scale = d * (bytes[at + sub] & 15);
      const min = dmin * (bytes[at + sub] >> 4);
      // Eight sub-blocks share 32 bytes: two halves of 16 bytes, four 2-bit planes.
      const codes = at + 16 + (sub >> 3) * 32 + (sub & 1) * 16;
      const shift = ((sub >> 1) & 3) * 2;
      const first = to + sub * 16;
      for (let i = 0; i < 16; i++) out[first + i] = scale * ((bytes[codes + i] >> shift) & 3) - min;
    }
  }
};

/** [32 bytes of third bits][64 bytes of 2-bit codes][12 bytes of 16 6-bit scales, biased by 32][d]. */
export const decodeQ3_K: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  const halves = halfTable();
  const end = outOffset + numValues;
  for (let at = byteOffset, to = outOffset; to < end; at += 110, to += 256) {
    const d = halves[bytes[at + 108] | (bytes[at + 109] << 8)];
    for (let sub = 0; sub < 16; sub++) {
      const low = sub < 8 ? bytes[at + 96 + sub] & 15 : bytes[at + 88 + sub] >> 4;
      const top = (bytes[at + 104 + (sub & 3)] >> ((sub >> 2) * 2)) & 3;
      const scale = d * ((low | (top << 4)) - 32);
      const codes = at + 32 + (sub >> 3) * 32 + (sub & 1) * 16;
      const shift = ((sub >> 1) & 3) * 2;
      const high = at + (sub & 1) * 16;
      const highShift = sub >> 1;
      const first = to + sub * 16;
      for (let i = 0; i < 16; i++) {
        const code = ((bytes[codes + i] >> shift) & 3) | (((bytes[high + i] >> highShift) & 1) << 2);
        out[first + i] = scale * (code - 4);
      }
    }
  }
};

/** [d][dmin][12 bytes of 8 scales and 8 mins, 6 bits each][128 bytes of nibbles]; 8 sub-blocks of 32 values. */
export const decodeQ4_K: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  const halves = halfTable();
  const end = outOffset + numValues;
  for (let at = byteOffset, to = outOffset; to < end; at += 144, to += 256) {
    const d = halves[bytes[at] | (bytes[at + 1] << 8)];
    const dmin = halves[bytes[at + 2] | (bytes[at + 3] << 8)];
    for (let pair = 0; pair < 4; pair++) {
      const sub = pair * 2;
      const lowScale = d * scaleOf(bytes, at + 4, sub);
      const lowMin = dmin * minOf(bytes, at + 4, sub);
      const highScale = d * scaleOf(bytes, at + 4, sub + 1);
      const highMin = dmin * minOf(bytes, at + 4, sub + 1);
      const codes = at + 16 + pair * 32;
      const first = to + pair * 64;
      for (let i = 0; i < 32; i++) {
        const code = bytes[codes + i];
        out[first + i] = lowScale * (code & 15) - lowMin;
        out[first + 32 + i] = highScale * (code >> 4) - highMin;
      }
    }
  }
};

/** q4_K with 32 bytes of fifth bits (bit = sub-block) between scales and nibbles. */
export const decodeQ5_K: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  const halves = halfTable();
  const end = outOffset + numValues;
  for (let at = byteOffset, to = outOffset; to < end; at += 176, to += 256) {
    const d = halves[bytes[at] | (bytes[at + 1] << 8)];
    const dmin = halves[bytes[at + 2] | (bytes[at + 3] << 8)];
    const high = at + 16;
    for (let pair = 0; pair < 4; pair++) {
      const sub = pair * 2;
      const lowScale = d * scaleOf(bytes, at + 4, sub);
      const lowMin = dmin * minOf(bytes, at + 4, sub);
      const highScale = d * scaleOf(bytes, at + 4, sub + 1);
      const highMin = dmin * minOf(bytes, at + 4, sub + 1);
      const codes = at + 48 + pair * 32;
      const first = to + pair * 64;
      for (let i = 0; i < 32; i++) {
        const code = bytes[codes + i];
        const fifth = bytes[high + i] >> sub;
        out[first + i] = lowScale * ((code & 15) | ((fifth & 1) << 4)) - lowMin;
        out[first + 32 + i] = highScale * ((code >> 4) | ((fifth & 2) << 3)) - highMin;
      }
    }
  }
};

/** [128 bytes of low nibbles][64 bytes of high bit pairs][16 int8 scales][d]; 16 sub-blocks of 16 values. */
export const decodeQ6_K: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  const halves = halfTable();
  const end = outOffset + numValues;
  for (let at = byteOffset, to = outOffset; to < end; at += 210, to += 256) {
    const d = halves[bytes[at + 208] | (bytes[at + 209] << 8)];
    for (let sub = 0; sub < 16; sub++) {
      const scale = d * ((bytes[at + 192 + sub] << 24) >> 24);
      // Per half of 128 values: quarter 0 and 1 are low nibbles, 2 and 3 high nibbles of the same 64 bytes.
      const half = sub >> 3;
      const quarter = (sub >> 1) & 3;
      const low = at + half * 64 + (quarter & 1) * 32 + (sub & 1) * 16;
      const lowShift = (quarter >> 1) * 4;
      const high = at + 128 + half * 32 + (sub & 1) * 16;
      const highShift = quarter * 2;
      const first = to + sub * 16;
      for (let i = 0; i < 16; i++) {
        const code = ((bytes[low + i] >> lowShift) & 15) | (((bytes[high + i] >> highShift) & 3) << 4);
        out[first + i] = scale * (code - 32);
      }
    }
  }
};

const floatScratch = new Float32Array(1);
const bitScratch = new Uint32Array(floatScratch.buffer);

/** [d as f32][256 int8 codes][16 int16 sums, which do not enter the values]. */
export const decodeQ8_K: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  const end = outOffset + numValues;
  for (let at = byteOffset, to = outOffset; to < end; at += 292, to += 256) {
    bitScratch[0] = bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16) | (bytes[at + 3] << 24);
    const d = floatScratch[0];
    for (let i = 0; i < 256; i++) out[to + i] = d * ((bytes[at + 4 + i] << 24) >> 24);
  }
};

/** [d][8 high bit pairs of scales][4 bytes of 8 low nibbles of scales, biased by 32][128 bytes of nibbles]. */
export const decodeIq4Xs: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  const halves = halfTable();
  const end = outOffset + numValues;
  for (let at = byteOffset, to = outOffset; to < end; at += 136, to += 256) {
    const d = halves[bytes[at] | (bytes[at + 1] << 8)];
    const scalesHigh = bytes[at + 2] | (bytes[at + 3] << 8);
    for (let sub = 0; sub < 8; sub++) {
      const low = (bytes[at + 4 + (sub >> 1)] >> ((sub & 1) * 4)) & 15;
      const scale = d * ((low | (((scalesHigh >> (sub * 2)) & 3) << 4)) - 32);
      const codes = at + 8 + sub * 16;
      const first = to + sub * 32;
      for (let i = 0; i < 16; i++) {
        const code = bytes[codes + i];
        out[first + i] = scale * iq4Values[code & 15];
        out[first + 16 + i] = scale * iq4Values[code >> 4];
      }
    }
  }
};

/**
 * The 12 scale bytes of q4_K and q5_K: scales 0..3 are the low six bits of bytes 0..3 and mins 0..3 those of bytes
 * 4..7; scales 4..7 are the low nibbles of bytes 8..11 below the top two bits of bytes 0..3, and mins 4..7 the high
 * nibbles below the top two bits of bytes 4..7.
 */
function scaleOf(bytes: Uint8Array, scales: number, sub: number): number {
  return sub < 4 ? bytes[scales + sub] & 63 : (bytes[scales + sub + 4] & 15) | ((bytes[scales + sub - 4] >> 6) << 4);
}

function minOf(bytes: Uint8Array, scales: number, sub: number): number {
  return sub < 4 ? bytes[scales + sub + 4] & 63 : (bytes[scales + sub + 4] >> 4) | ((bytes[scales + sub] >> 6) << 4);
}
