/** Random bytes of block formats that dequantize to moderate numbers: everything is random except the scales. */
import { dtypeInfo, floatToHalf, sizeOf, type DType, type Rng } from '@winnow/tensor';

/** Bytes at which a block has 16-bit scales. Layouts: ggml-common.h of llama.cpp. */
const scaleOffsets: Readonly<Partial<Record<DType, readonly number[]>>> = {
  q4_0: [0],
  q4_1: [0, 2],
  q5_0: [0],
  q5_1: [0, 2],
  q8_0: [0],
  q2_K: [80, 82],
  q3_K: [108],
  q4_K: [0, 2],
  q5_K: [0, 2],
  q6_K: [208],
  iq1_s: [0],
  iq2_xxs: [0],
  iq2_xs: [0],
  iq2_s: [0],
  iq3_xxs: [0],
  iq3_s: [0],
  iq4_nl: [0],
  iq4_xs: [0],
  tq1_0: [52],
  tq2_0: [64],
};

/** Whole blocks for `numValues` values. */
export function randomBlocks(dtype: DType, numValues: number, rng: Rng): Uint8Array {
  const { blockBytes } = dtypeInfo(dtype);
  const bytes = new Uint8Array(sizeOf(dtype, numValues));
  for (let i = 0; i < bytes.length; i++) bytes[i] = rng.nextInt(256);
  for (let at = 0; at < bytes.length; at += blockBytes) {
    if (dtype === 'mxfp4') {
      bytes[at] = 122 + rng.nextInt(6); // exponent of 2, biased by 127
    } else if (dtype === 'iq1_m') {
      writeSpreadScale(bytes, at + 48, randomScale(rng));
    } else {
      for (const offset of scaleOffsets[dtype] ?? []) {
        const half = randomScale(rng);
        bytes[at + offset] = half & 255;
        bytes[at + offset + 1] = half >> 8;
      }
    }
  }
  return bytes;
}

/** A half between 2^-7 and 2^-5, of either sign. */
function randomScale(rng: Rng): number {
  return floatToHalf((rng.nextInt(2) * 2 - 1) * 2 ** (-7 + 2 * rng.nextFloat()));
}

/** iq1_m stores the four nibbles of its half in the top four bits of four 16-bit words, lowest first. */
function writeSpreadScale(bytes: Uint8Array, at: number, half: number): void {
  for (let digit = 0; digit < 4; digit++) {
    const high = at + 2 * digit + 1;
    bytes[high] = (bytes[high] & 0x0f) | (((half >> (4 * digit)) & 15) << 4);
  }
}
