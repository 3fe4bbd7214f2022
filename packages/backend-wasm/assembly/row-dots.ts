/**
 * Dot products of 8-bit activations with rows of q8_0 and q4_0 as they lie in files, four rows at a time: for rows that are
 * chosen, which groups of four cannot be made of beforehand. Scales are converted for a whole row at once; those of the next
 * four rows are fetched meanwhile, which brings all of their memory. Relaxed builds only.
 */
import { halfMask, halfOffset, leastNormal, nibbleMask, upperExponent } from './constants';
import { dot } from './dots8';
import { high } from './dots8-blocks';
import { META_BYTES, META_MINUS_128, META_MINUS_8, META_SCALE } from './quantise';
import { fma, halfToFloat4, sum4 } from './simd';

/** Blocks between fetches of the scales of the next rows. */
const STEP: i32 = 8;

/** Bytes of the scratch for `numBlocks` blocks per row: scales of four rows as binary16, twice, as f32, and of activations. */
export function rowScratchBytes(numBlocks: i32): usize {
  return paddedBlocks(numBlocks) * (2 * 8 + 16 + 4);
}

/** Whole vectors of eight. */
function paddedBlocks(numBlocks: i32): usize {
  return <usize>((numBlocks + 7) & ~7);
}

let rawBytes: usize = 0; // of the scales of one row as binary16
let raw: usize = 0; // those of the four rows at hand
let next: usize = 0; // and of those after them
let scales: usize = 0;
let inputScales: usize = 0;

/** Lays out scratch, before any row. */
export function layRows(scratch: usize, numBlocks: i32): void {
  const padded = paddedBlocks(numBlocks);
  rawBytes = padded << 1;
  raw = scratch;
  next = raw + (rawBytes << 2);
  scales = next + (rawBytes << 2);
  inputScales = scales + (padded << 4);
}

/** Takes the scales of the activations of a token. */
export function takeInputScales(meta: usize, numBlocks: i32): void {
  let to = inputScales;
  for (let block = 0; block < numBlocks; block++, meta += META_BYTES, to += 4) store<u32>(to, load<u32>(meta, META_SCALE));
}

/** Fetches the scales of four rows before anything is computed with them. */
export function fetchFirst(w0: usize, w1: usize, w2: usize, w3: usize, blockBytes: usize, numBlocks: i32): void {
  fetch(w0, w1, w2, w3, blockBytes, raw, numBlocks);
}

function fetch(w0: usize, w1: usize, w2: usize, w3: usize, blockBytes: usize, to: usize, numBlocks: i32): void {
  const second = to + rawBytes;
  const third = second + rawBytes;
  const fourth = third + rawBytes;
  const end = to + (<usize>numBlocks << 1);
  let at: usize = 0;
  let offset: usize = 0;
  for (; to + at < end; at += 2, offset += blockBytes) {
    store<u16>(to + at, load<u16>(w0 + offset));
    store<u16>(second + at, load<u16>(w1 + offset));
    store<u16>(third + at, load<u16>(w2 + offset));
    store<u16>(fourth + at, load<u16>(w3 + offset));
  }
}

/** What was fetched times the scales of the activations, as f32. */
export function convertScales(numBlocks: i32): void {
  for (let row: usize = 0; row < 4; row++) {
    convertRow(raw + row * rawBytes, scales + row * (rawBytes << 1), inputScales, numBlocks);
  }
}

/** `to = from * factors`, whole vectors of eight. Normal numbers by integer arithmetic, anything else with care. */
export function convertRow(from: usize, to: usize, factors: usize, count: i32): void {
  const mask = halfMask();
  const offset = halfOffset();
  const step = leastNormal();
  const upper = upperExponent();
  for (let i = 0; i < count; i += 8, from += 16, to += 32, factors += 32) {
    // zero where the exponent has all bits or none
    const rank = v128.and(i16x8.add(v128.load(from), step), upper);
    let low: v128;
    let rest: v128;
    if (i16x8.all_true(rank)) {
      low = i32x4.add(v128.and(i32x4.shl(v128.load16x4_s(from), 13), mask), offset);
      rest = i32x4.add(v128.and(i32x4.shl(v128.load16x4_s(from, 8), 13), mask), offset);
    } else {
      low = halfToFloat4(v128.load16x4_u(from));
      rest = halfToFloat4(v128.load16x4_u(from, 8));
    }
    v128.store(to, f32x4.mul(low, v128.load(factors)));
    v128.store(to, f32x4.mul(rest, v128.load(factors, 16)), 16);
  }
}

/** Goes on to the rows whose scales were fetched meanwhile. */
export function nextRows(): void {
  const before = raw;
  raw = next;
  next = before;
}

/** The sums of four rows of q8_0; fetches the scales of the rows n0 to n3 unless n0 is 0. */
export function rowDotsQ8(
  p0: usize,
  p1: usize,
  p2: usize,
  p3: usize,
  n0: usize,
  n1: usize,
  n2: usize,
  n3: usize,
  x: usize,
  meta: usize,
  numBlocks: i32,
): v128 {
  const flip = i8x16.splat(-128);
  const row = rawBytes << 1;
  const to = next;
  let s0 = f32x4.splat(0);
  let s1 = s0;
  let s2 = s0;
  let s3 = s0;
  let scale = scales;
  for (let begin = 0; begin < numBlocks; begin += STEP) {
    const count = min<i32>(STEP, numBlocks - begin);
    for (let i = 0; i < count; i++) {
      const start = v128.load32_zero(meta, META_MINUS_128);
      const u = v128.load(x);
      const v = v128.load(x, 16);
      const a = dot(v, v128.xor(v128.load(p0, 18), flip), dot(u, v128.xor(v128.load(p0, 2), flip), start));
      s0 = fma(f32x4.convert_i32x4_s(a), v128.load32_splat(scale), s0);
      const b = dot(v, v128.xor(v128.load(p1, 18), flip), dot(u, v128.xor(v128.load(p1, 2), flip), start));
      s1 = fma(f32x4.convert_i32x4_s(b), v128.load32_splat(scale + row), s1);
      const c = dot(v, v128.xor(v128.load(p2, 18), flip), dot(u, v128.xor(v128.load(p2, 2), flip), start));
      s2 = fma(f32x4.convert_i32x4_s(c), v128.load32_splat(scale + 2 * row), s2);
      const d = dot(v, v128.xor(v128.load(p3, 18), flip), dot(u, v128.xor(v128.load(p3, 2), flip), start));
      s3 = fma(f32x4.convert_i32x4_s(d), v128.load32_splat(scale + 3 * row), s3);
      p0 += 34;
      p1 += 34;
      p2 += 34;
      p3 += 34;
      x += 32;
      meta += META_BYTES;
      scale += 4;
    }
    if (n0 == 0) continue;
    const offset = <usize>begin * 34;
    fetch(n0 + offset, n1 + offset, n2 + offset, n3 + offset, 34, to + (<usize>begin << 1), count);
  }
  return f32x4(sum4(s0), sum4(s1), sum4(s2), sum4(s3));
}

/** The same for q4_0. */
export function rowDotsQ4(
  p0: usize,
  p1: usize,
  p2: usize,
  p3: usize,
  n0: usize,
  n1: usize,
  n2: usize,
  n3: usize,
  x: usize,
  meta: usize,
  numBlocks: i32,
): v128 {
  const low = nibbleMask();
  const row = rawBytes << 1;
  const to = next;
  let s0 = f32x4.splat(0);
  let s1 = s0;
  let s2 = s0;
  let s3 = s0;
  let scale = scales;
  for (let begin = 0; begin < numBlocks; begin += STEP) {
    const count = min<i32>(STEP, numBlocks - begin);
    for (let i = 0; i < count; i++) {
      const start = v128.load32_zero(meta, META_MINUS_8);
      const u = v128.load(x);
      const v = v128.load(x, 16);
      let w = v128.load(p0, 2);
      const a = dot(v, high(w, low), dot(u, v128.and(w, low), start));
      s0 = fma(f32x4.convert_i32x4_s(a), v128.load32_splat(scale), s0);
      w = v128.load(p1, 2);
      const b = dot(v, high(w, low), dot(u, v128.and(w, low), start));
      s1 = fma(f32x4.convert_i32x4_s(b), v128.load32_splat(scale + row), s1);
      w = v128.load(p2, 2);
      const c = dot(v, high(w, low), dot(u, v128.and(w, low), start));
      s2 = fma(f32x4.convert_i32x4_s(c), v128.load32_splat(scale + 2 * row), s2);
      w = v128.load(p3, 2);
      const d = dot(v, high(w, low), dot(u, v128.and(w, low), start));
      s3 = fma(f32x4.convert_i32x4_s(d), v128.load32_splat(scale + 3 * row), s3);
      p0 += 18;
      p1 += 18;
      p2 += 18;
      p3 += 18;
      x += 32;
      meta += META_BYTES;
      scale += 4;
    }
    if (n0 == 0) continue;
    const offset = <usize>begin * 18;
    fetch(n0 + offset, n1 + offset, n2 + offset, n3 + offset, 18, to + (<usize>begin << 1), count);
  }
  return f32x4(sum4(s0), sum4(s1), sum4(s2), sum4(s3));
}
