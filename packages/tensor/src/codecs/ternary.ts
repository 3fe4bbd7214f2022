/**
 * Unpacking of the ternary formats: value = d * (trit - 1).
 * Source of the layouts: https://github.com/ggml-org/llama.cpp/blob/4bfb31880dac521bede6e244260cfe44c31a27e3/gguf-py/gguf/quants.py
 */
import { halfTable } from '../half.js';
import type { Decoder } from './signatures.js';

/**
 * Five trits per byte, as a fixed-point fraction: multiplying by 3^n modulo 256 brings trit n to the top, and the
 * integer part of that byte times 3 / 256 is the trit. [48 bytes of 5][4 bytes of 4][d]; a byte group of 32, 16 or 4
 * holds that many consecutive values per trit position.
 */
export const decodeTq1_0: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  const halves = halfTable();
  const end = outOffset + numValues;
  for (let at = byteOffset, to = outOffset; to < end; at += 54, to += 256) {
    const d = halves[bytes[at + 52] | (bytes[at + 53] << 8)];
    unpackTrits(bytes, at, 32, 5, d, out, to);
    unpackTrits(bytes, at + 32, 16, 5, d, out, to + 160);
    unpackTrits(bytes, at + 48, 4, 4, d, out, to + 240);
  }
};

function unpackTrits(
  bytes: Uint8Array,
  at: number,
  numBytes: number,
  numTrits: number,
  d: number,
  out: Float32Array,
  to: number,
): void {
  for (let trit = 0, power = 1; trit < numTrits; trit++, power *= 3) {
    for (let i = 0; i < numBytes; i++) {
      const fraction = (bytes[at + i] * power) & 255;
      out[to + trit * numBytes + i] = d * (((fraction * 3) >> 8) - 1);
    }
  }
}

/** [64 bytes of four 2-bit trits, in two groups of 32][d]. A fourth trit, 3, decodes to 2 * d. */
export const decodeTq2_0: Decoder = (bytes, byteOffset, out, outOffset, numValues) => {
  const halves = halfTable();
  const end = outOffset + numValues;
  for (let at = byteOffset, to = outOffset; to < end; at += 66, to += 256) {
    const d = halves[bytes[at + 64] | (bytes[at + 65] << 8)];
    for (let group = 0; group < 2; group++) {
      for (let i = 0; i < 32; i++) {
        const code = bytes[at + group * 32 + i];
        const first = to + group * 128 + i;
        out[first] = d * ((code & 3) - 1);
        out[first + 32] = d * (((code >> 2) & 3) - 1);
        out[first + 64] = d * (((code >> 4) & 3) - 1);
        out[first + 96] = d * ((code >> 6) - 1);
      }
    }
  }
};
