/**
 * Vectors that hot loops keep in registers. V8 builds a vector constant anew wherever it is used, three instructions each;
 * what comes from memory before the loop stays in a register.
 */
const table = memory.data<u32>([
  0x0f0f0f0f, 0x30303030, 0x8fffe000, 0x72800000, 0x3f3f3f3f, 255, 0x7fff7fff, 0x38000000, 0x04000400, 0x77ff77ff,
  0xff800000, 0x4b400000, 0x78007800, 0x73800000, 0x80808080, 0x42fe0000, 0x03aa2425, 0x00010001,
]);

/** Low nibbles of bytes. */
export function nibbleMask(): v128 {
  return v128.load32_splat(table);
}
/** Bits 4 and 5 of bytes. */
export function pairMask(): v128 {
  return v128.load32_splat(table, 4);
}
/** Sign, and the magnitude of a binary16 where an f32 has it. */
export function halfMask(): v128 {
  return v128.load32_splat(table, 8);
}
/** 2^102 as f32: what repacked scales have to be multiplied by once their bits stand where an f32 has them; see repack.ts. */
export function halfFactor(): v128 {
  return v128.load32_splat(table, 12);
}
/** Low byte of words. */
export function byteMask(): v128 {
  return v128.load32_splat(table, 20);
}
/** Magnitude of 16-bit words. */
export function magnitudeMask(): v128 {
  return v128.load32_splat(table, 24);
}
/** What the exponent of an f32 exceeds that of a binary16 by, in place. */
export function halfOffset(): v128 {
  return v128.load32_splat(table, 28);
}
/** The least normal binary16. */
export function leastNormal(): v128 {
  return v128.load32_splat(table, 32);
}
/** Distance of the largest finite binary16 from it. */
export function largestRank(): v128 {
  return v128.load32_splat(table, 36);
}
export function minusInfinity(): v128 {
  return v128.load32_splat(table, 40);
}
/** 1.5 * 2^23. */
export function roundingMagic(): v128 {
  return v128.load32_splat(table, 44);
}
/** All but the lowest bit of the exponent of a binary16. */
export function upperExponent(): v128 {
  return v128.load32_splat(table, 48);
}
/** 2^104 as f32: what plain scales are multiplied by, with the scale of activations, once their bits stand where an f32 has them. */
export function plainFactor(): v128 {
  return v128.load32_splat(table, 52);
}
/** What is then left of 2^112, which would make infinities of large activations. */
export function plainRest(): f32 {
  return 256;
}
/** Sign bits of bytes. */
export function flipSigns(): v128 {
  return v128.load32_splat(table, 56);
}
/** 127, as f32. */
export function largestCode(): v128 {
  return v128.load32_splat(table, 60);
}
/** 1e-36: smaller numbers have no reciprocal. */
export function leastInvertible(): v128 {
  return v128.load32_splat(table, 64);
}
/** 1, as 16-bit words. */
export function onePairs(): v128 {
  return v128.load32_splat(table, 68);
}
