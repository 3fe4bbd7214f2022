/**
 * Ops that choose neurons: active-neurons and gather-columns. Which neurons are active is found for runs of them, one bit
 * each; then every thread counts the bits of all runs and writes the neurons of its own, so that their order is that of one
 * thread.
 */
import { addressOf, attributeF, attributeI, dim, sharedScratch } from '../record';
import { phaseBarrier, takeUnits } from '../threads';

/** Neurons of a run; whole bytes of bits. */
const RUN: i32 = 1024;

/** Tensors: scores, thresholds, ids, count. Attributes: absolute, maxRatio. Units: runs of neurons. */
export function activeNeurons(): void {
  const numTokens = dim(0, 0);
  const numNeurons = dim(0, 1);
  const bits = sharedScratch();
  const counts = bits + ((<usize>(numNeurons + 7) >> 3) + 63 & ~63);
  const sign: u32 = attributeI(0) != 0 ? 0x7fffffff : 0xffffffff;
  for (let begin = takeUnits(RUN); begin < numNeurons; begin = takeUnits(RUN)) {
    const end = min<i32>(numNeurons, begin + RUN);
    store<i32>(counts + (<usize>(begin / RUN) << 2), findRun(begin, end, numTokens, numNeurons, sign, bits));
  }
  phaseBarrier();
  const numRuns = (numNeurons + RUN - 1) / RUN;
  let total = 0;
  for (let run = 0; run < numRuns; run++) total += load<i32>(counts + (<usize>run << 2));
  const ids = addressOf(2);
  const isAll = <f64>total > <f64>attributeF(1) * <f64>numNeurons;
  if (isAll) total = numNeurons;
  let summed = 0; // runs whose counts are in `place`
  let place = 0;
  for (let begin = takeUnits(RUN); begin < numNeurons; begin = takeUnits(RUN)) {
    const end = min<i32>(numNeurons, begin + RUN);
    if (isAll) {
      for (let f = begin; f < end; f++) store<i32>(ids + (<usize>f << 2), f);
      continue;
    }
    const run = begin / RUN;
    for (; summed < run; summed++) place += load<i32>(counts + (<usize>summed << 2));
    writeIds(bits, begin, end, ids + (<usize>place << 2));
    const rest = max<i32>(begin, total);
    if (rest < end) memory.fill(ids + (<usize>rest << 2), 0, <usize>(end - rest) << 2);
  }
  // a run of its own, which just one thread takes, would be one more; the first to come here writes the same as all others
  store<i32>(addressOf(3), total);
}

/** Notes which neurons of a run are active and returns how many. */
function findRun(begin: i32, end: i32, numTokens: i32, numNeurons: i32, sign: u32, bits: usize): i32 {
  const scores = addressOf(0);
  const thresholds = addressOf(1);
  const mask = i32x4.splat(sign);
  const row = <usize>numNeurons << 2;
  let count = 0;
  let f = begin;
  for (; f + 8 <= end; f += 8) {
    const at = <usize>f << 2;
    const first = v128.load(thresholds + at);
    const second = v128.load(thresholds + at, 16);
    let idle = 255;
    let from = scores + at;
    for (let t = 0; t < numTokens; t++, from += row) {
      const low = f32x4.lt(v128.and(v128.load(from), mask), first);
      const high = f32x4.lt(v128.and(v128.load(from, 16), mask), second);
      idle &= i32x4.bitmask(low) | (i32x4.bitmask(high) << 4);
    }
    const active = idle ^ 255;
    store<u8>(bits + <usize>(f >> 3), active);
    count += popcnt(active);
  }
  if (f < end) {
    let active = 0;
    for (let g = f; g < end; g++) {
      const threshold = load<f32>(thresholds + (<usize>g << 2));
      let from = scores + (<usize>g << 2);
      let isActive = false;
      for (let t = 0; t < numTokens; t++, from += row) {
        if (!(reinterpret<f32>(load<u32>(from) & sign) < threshold)) isActive = true;
      }
      if (isActive) active |= 1 << (g - f);
    }
    store<u8>(bits + <usize>(f >> 3), active);
    count += popcnt(active);
  }
  return count;
}

/** The neurons of a run whose bits are set, from `to` on. */
function writeIds(bits: usize, begin: i32, end: i32, to: usize): void {
  for (let f = begin; f < end; f += 32) {
    const numBytes = min<i32>(4, (end - f + 7) >> 3);
    const at = bits + <usize>(f >> 3);
    let word: u32 = 0;
    if (numBytes == 4) word = load<u32>(at);
    else for (let i = 0; i < numBytes; i++) word |= <u32>load<u8>(at + <usize>i) << (i << 3);
    for (; word != 0; word &= word - 1, to += 4) store<i32>(to, f + <i32>ctz(word));
  }
}

/** Columns of a unit. */
const COLUMNS: i32 = 1024;

/** Tensors: x, ids, count, y. Units: runs of columns of a token. */
export function gatherColumns(): void {
  const numTokens = dim(0, 0);
  const numColumns = dim(0, 1);
  const ids = addressOf(1);
  const count = load<i32>(addressOf(2));
  const perToken = (numColumns + COLUMNS - 1) / COLUMNS;
  for (let unit = takeUnits(1); unit < numTokens * perToken; unit = takeUnits(1)) {
    const row = <usize>(unit / perToken) * (<usize>numColumns << 2);
    const begin = (unit % perToken) * COLUMNS;
    const end = min<i32>(numColumns, begin + COLUMNS);
    const x = addressOf(0) + row;
    const y = addressOf(3) + row;
    const whole = min<i32>(end, max<i32>(begin, count));
    for (let j = begin; j < whole; j++) {
      const at = <usize>j << 2;
      store<u32>(y + at, load<u32>(x + (<usize>load<u32>(ids + at) << 2)));
    }
    if (whole < end) memory.fill(y + (<usize>whole << 2), 0, <usize>(end - whole) << 2);
  }
}
