/** Resizing with antialiasing, bit-identical to Pillow's `Image.resize` for 8-bit channels. */
import { ArgumentError } from '@winnow/tensor';
import type { RgbImage } from './image.js';

export type ResizeFilter = 'bilinear' | 'bicubic' | 'lanczos' | 'box';

interface Kernel {
  /** Radius in source pixels, unless the image is reduced. */
  readonly support: number;
  readonly weight: (x: number) => number;
}

const sinc = (x: number): number => (x === 0 ? 1 : Math.sin(x * Math.PI) / (x * Math.PI));

function cubic(x: number): number {
  const a = -0.5;
  const t = Math.abs(x);
  if (t < 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
  return t < 2 ? (((t - 5) * t + 8) * t - 4) * a : 0;
}

const kernels: Readonly<Record<ResizeFilter, Kernel>> = {
  box: { support: 0.5, weight: (x) => (x > -0.5 && x <= 0.5 ? 1 : 0) },
  bilinear: { support: 1, weight: (x) => Math.max(0, 1 - Math.abs(x)) },
  bicubic: { support: 2, weight: cubic },
  lanczos: { support: 3, weight: (x) => (x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0) },
};

/** The source pixels of each target pixel, and their weights as fixed-point numbers. */
interface Coefficients {
  readonly begins: Int32Array; // [size]
  readonly counts: Int32Array; // [size]
  readonly weights: Int32Array; // [size, maxCount]
  readonly maxCount: number;
}

/** Fractional bits of weights: of 32 bits, 8 are for a pixel and 2 for sums beyond 1. */
const precisionBits = 22;

/** Pillow 12.3 src/libImaging/Resample.c, `precompute_coeffs` and `normalize_coeffs_8bpc`. */
function coefficients(from: number, to: number, { support, weight }: Kernel): Coefficients {
  const scale = from / to;
  const filterScale = Math.max(1, scale);
  const radius = support * filterScale;
  const maxCount = Math.ceil(radius) * 2 + 1;
  const table = { begins: new Int32Array(to), counts: new Int32Array(to), weights: new Int32Array(to * maxCount) };
  const raw = new Float64Array(maxCount);
  for (let i = 0; i < to; i++) {
    const center = (i + 0.5) * scale;
    const begin = Math.max(0, Math.trunc(center - radius + 0.5));
    const count = Math.min(from, Math.trunc(center + radius + 0.5)) - begin;
    let sum = 0;
    for (let x = 0; x < count; x++) {
      raw[x] = weight((x + begin - center + 0.5) / filterScale);
      sum += raw[x] as number;
    }
    for (let x = 0; x < count; x++) {
      const value = ((sum === 0 ? (raw[x] as number) : (raw[x] as number) / sum) * 2 ** precisionBits) as number;
      table.weights[i * maxCount + x] = Math.trunc(value < 0 ? value - 0.5 : value + 0.5);
    }
    table.begins[i] = begin;
    table.counts[i] = count;
  }
  return { ...table, maxCount };
}

/** Resamples lines of pixels: `[lines, from, 3]` with strides to `[lines, to, 3]`. Strides in values. */
interface Lines {
  readonly count: number;
  readonly lineStride: number;
  readonly pixelStride: number;
}

function resample(source: Uint8Array, from: Lines, target: Uint8Array, to: Lines, table: Coefficients): void {
  const { begins, counts, weights, maxCount } = table;
  const half = 2 ** (precisionBits - 1);
  for (let line = 0; line < from.count; line++) {
    for (let i = 0; i < begins.length; i++) {
      const begin = line * from.lineStride + (begins[i] as number) * from.pixelStride;
      const out = line * to.lineStride + i * to.pixelStride;
      for (let channel = 0; channel < 3; channel++) {
        let sum = half;
        let at = begin + channel;
        for (let x = 0; x < (counts[i] as number); x++, at += from.pixelStride) {
          sum += (source[at] as number) * (weights[i * maxCount + x] as number);
        }
        target[out + channel] = Math.max(0, Math.min(255, sum >> precisionBits));
      }
    }
  }
}

/**
 * Resizes an image: rows first, then columns, with intermediate values of 8 bits. Cost per direction: `3 * width * height` of the
 * target times the filter's width in source pixels.
 * @throws {ArgumentError} for a size that is not positive
 */
export function resizeImage(image: RgbImage, width: number, height: number, filter: ResizeFilter): RgbImage {
  for (const [argument, value] of Object.entries({ width, height })) {
    if (Number.isSafeInteger(value) && value > 0) continue;
    throw new ArgumentError({ argument, expected: 'a positive integer', actual: String(value) });
  }
  const kernel = kernels[filter];
  let { data } = image;
  if (width !== image.width) {
    const wide = new Uint8Array(3 * width * image.height);
    const from = { count: image.height, lineStride: 3 * image.width, pixelStride: 3 };
    const to = { count: image.height, lineStride: 3 * width, pixelStride: 3 };
    resample(data, from, wide, to, coefficients(image.width, width, kernel));
    data = wide;
  }
  if (height !== image.height) {
    const tall = new Uint8Array(3 * width * height);
    const columns = { count: width, lineStride: 3, pixelStride: 3 * width };
    resample(data, columns, tall, columns, coefficients(image.height, height, kernel));
    data = tall;
  }
  return { width, height, data };
}
