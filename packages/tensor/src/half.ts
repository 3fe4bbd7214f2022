/**
 * Half precision: IEEE 754 binary16 ("f16") and bfloat16, to and from float32. Both narrowings round to nearest, ties
 * to even. NaN stays NaN (made quiet), infinities and signed zeros are preserved.
 */

const floatScratch = new Float32Array(1);
const bitScratch = new Uint32Array(floatScratch.buffer);

/** Adding and subtracting it rounds a smaller double to an integer, ties to even. */
const roundToInteger = 2 ** 52;

/**
 * Value of a binary16 bit pattern, exactly. Bits above the low 16 are ignored.
 * Source: IEEE 754-2019 §3.4 (1 sign, 5 exponent bits with bias 15, 10 fraction bits).
 */
export function halfToFloat(bits: number): number {
  const exponent = (bits >>> 10) & 31;
  const fraction = bits & 1023;
  const sign = (bits & 0x8000) === 0 ? 1 : -1;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
  return sign * (1024 + fraction) * 2 ** (exponent - 25);
}

/**
 * Bit pattern of the binary16 nearest to `value`, ties to even. `value` is first rounded to float32, which is what a
 * `Float32Array` holds. From 65520 upwards the result is infinity.
 */
export function floatToHalf(value: number): number {
  floatScratch[0] = value;
  return roundToHalf(bitScratch[0], floatScratch[0]);
}

/** `floatToHalf` of a float32 with known `bits`, for loops over an array and a view of its bits. */
export function roundToHalf(bits: number, value: number): number {
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  // Below 2^-14 the result counts units of 2^-24.
  if (magnitude < 0x38800000) return sign | (Math.abs(value) * 2 ** 24 + roundToInteger - roundToInteger);
  if (magnitude < 0x477ff000) return sign | ((magnitude + 0xfff + ((magnitude >>> 13) & 1) - 0x38000000) >>> 13);
  return magnitude > 0x7f800000 ? sign | 0x7e00 | ((magnitude >>> 13) & 0x3ff) : sign | 0x7c00;
}

/** Value of a bfloat16 bit pattern, exactly. Bits above the low 16 are ignored. */
export function bfloat16ToFloat(bits: number): number {
  bitScratch[0] = bits << 16;
  return floatScratch[0];
}

/** Bit pattern of the bfloat16 nearest to `value`, ties to even; `value` is first rounded to float32. */
export function floatToBfloat16(value: number): number {
  floatScratch[0] = value;
  return roundToBfloat16(bitScratch[0]);
}

/** `floatToBfloat16` of the float32 with these bits. */
export function roundToBfloat16(bits: number): number {
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40;
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

let table: Float32Array | undefined;

/**
 * The value of every binary16 bit pattern: `halfTable()[bits]` equals `halfToFloat(bits)`. Built on the first call (256
 * KiB) and shared; do not write to it. For loops that convert many values.
 */
export function halfTable(): Float32Array {
  if (table === undefined) {
    table = new Float32Array(65536);
    for (let bits = 0; bits < 65536; bits++) table[bits] = halfToFloat(bits);
  }
  return table;
}

/** Widens `source` into `out[outOffset ...]`, exactly. The caller guarantees that it fits. */
export function halfArrayToFloat(source: Uint16Array, out: Float32Array, outOffset = 0): void {
  const values = halfTable();
  for (let i = 0; i < source.length; i++) out[outOffset + i] = values[source[i]];
}

/** Rounds `source` to binary16 bit patterns in `out[outOffset ...]`. The caller guarantees that it fits. */
export function floatArrayToHalf(source: Float32Array, out: Uint16Array, outOffset = 0): void {
  for (let i = 0; i < source.length; i++) out[outOffset + i] = floatToHalf(source[i]);
}

/** Widens `source` into `out[outOffset ...]`, exactly. The caller guarantees that it fits. */
export function bfloat16ArrayToFloat(source: Uint16Array, out: Float32Array, outOffset = 0): void {
  for (let i = 0; i < source.length; i++) {
    bitScratch[0] = source[i] << 16;
    out[outOffset + i] = floatScratch[0];
  }
}

/** Rounds `source` to bfloat16 bit patterns in `out[outOffset ...]`. The caller guarantees that it fits. */
export function floatArrayToBfloat16(source: Float32Array, out: Uint16Array, outOffset = 0): void {
  for (let i = 0; i < source.length; i++) out[outOffset + i] = floatToBfloat16(source[i]);
}
