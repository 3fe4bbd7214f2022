import { opSpec, ropeFrequencies, type TensorView } from '@winnow/ops';
import {
  ArgumentError,
  CapacityError,
  createRng,
  decode,
  encode,
  ShapeError,
  sizeOf,
  type DType,
} from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { gaussians } from '../test/random-kv.js';
import {
  attendPartial,
  createContiguousCache,
  createKvPool,
  createPagedCache,
  createStates,
  expiredSlots,
  finishStates,
  rotateRows,
  sinkQueryPosition,
  type KvCache,
} from './index.js';

const numKvHeads = 2;
const numHeads = 6;
const headDim = 32;
const valueDim = 64;
const sizes = { numKvHeads, headDim, valueDim };
const f32Ulp = 2 ** -24;

/** Softmax over all keys at once, in f64. */
function fullAttention(cache: KvCache, q: Float32Array, maxPosition: number): Float64Array {
  const out = new Float64Array(numHeads * valueDim);
  const key = new Float32Array(headDim);
  const value = new Float32Array(valueDim);
  for (let head = 0; head < numHeads; head++) {
    const kvHead = Math.floor((head * numKvHeads) / numHeads);
    const logits: number[] = [];
    const slots: number[] = [];
    for (let slot = 0; slot < cache.numSlots; slot++) {
      if (cache.position(slot) < 0 || cache.position(slot) > maxPosition) continue;
      cache.readKey(slot, kvHead, key, 0);
      let logit = 0;
      for (let i = 0; i < headDim; i++) logit += q[head * headDim + i] * key[i];
      logits.push(logit / Math.sqrt(headDim));
      slots.push(slot);
    }
    const max = Math.max(...logits);
    const weights = logits.map((logit) => Math.exp(logit - max));
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    slots.forEach((slot, t) => {
      cache.readValue(slot, kvHead, value, 0);
      for (let i = 0; i < valueDim; i++) out[head * valueDim + i] += (weights[t] / total) * value[i];
    });
  }
  return out;
}

function fill(cache: KvCache, seed: number, ...steps: number[]): void {
  const rng = createRng(seed);
  for (const step of steps) {
    cache.append(gaussians(rng, step * numKvHeads * headDim), gaussians(rng, step * numKvHeads * valueDim));
  }
}

describe('attend', () => {
  // m is exact; l, each o, their quotient, and once per merge into the empty state (times exp(0) = 1): 4 roundings of o/l
  const bound = 4 * f32Ulp;

  it.each([1, 3, 64, 1000])('tiles of %d keys equal full softmax', (tileSize) => {
    const cache = createContiguousCache({ ...sizes, capacity: 200 });
    fill(cache, 1, 150);
    const q = gaussians(createRng(2), numHeads * headDim);
    const expected = fullAttention(cache, q, 120);
    const actual = cache.attend(q, { tileSize, position: 120 });
    // |v| < 6 for these values: the f64 sums are off by far less than the roundings to f32
    expected.forEach((value, i) => expect(Math.abs(actual[i] - value)).toBeLessThanOrEqual(bound * 6));
  });

  it('agrees with the reference op of @winnow/ops on the same memory', () => {
    const pool = createKvPool({ ...sizes, numBlocks: 8, blockSize: 4, keyDType: 'q8_0', valueDType: 'f16' });
    createPagedCache(pool); // an empty sequence, so that this one is not the first
    const cache = createPagedCache(pool);
    fill(cache, 5, 13, 1, 1);
    const q = gaussians(createRng(6), numHeads * headDim);
    const { keys, values, slotPositions } = pool.storage;
    const ints = (...data: number[]): TensorView => ({
      dtype: 'i32',
      shape: [data.length],
      data: Int32Array.from(data),
    });
    const y = new Float32Array(numHeads * valueDim);
    opSpec('attention').bindReference({
      inputs: {
        q: { dtype: 'f32', shape: [1, numHeads, headDim], data: q },
        positions: ints(14),
        sequences: ints(0),
        keys: { dtype: 'q8_0', shape: [8, numKvHeads, 4, headDim], data: keys },
        values: { dtype: 'f16', shape: [8, numKvHeads, 4, valueDim], data: values },
        slotPositions: { dtype: 'i32', shape: [8, 4], data: slotPositions },
        blockTable: { ...ints(...cache.sequence.blocks), shape: [1, cache.sequence.blocks.length] },
        contextLengths: ints(cache.numSlots),
      },
      outputs: { y: { dtype: 'f32', shape: [1, numHeads, valueDim], data: y } },
      attributes: { scale: 1 / Math.sqrt(headDim), causal: true, window: 0, softCap: 0 },
    })();
    cache.attend(q).forEach((value, i) => expect(Math.abs(value - y[i])).toBeLessThanOrEqual(2 * bound * 6));
  });

  it('returns the probability of each slot', () => {
    const cache = createContiguousCache({ ...sizes, capacity: 50 });
    fill(cache, 1, 50);
    const masses = new Float32Array(50);
    cache.attend(gaussians(createRng(2), numHeads * headDim), { masses, position: 30, tileSize: 7 });
    // 31 keys get the mass of 6 heads; each of the 6 x 31 additions to f32 rounds by at most half a unit of 1
    expect(Math.abs(masses.reduce((sum, mass) => sum + mass, 0) - numHeads)).toBeLessThanOrEqual(6 * 31 * f32Ulp);
    expect(masses.slice(31).every((mass) => mass === 0)).toBe(true);
  });

  it('gives zeros when nothing is visible, and refuses queries that do not fit', () => {
    const cache = createContiguousCache({ ...sizes, capacity: 50 });
    expect(cache.attend(new Float32Array(numHeads * headDim)).every((value) => value === 0)).toBe(true);
    expect(() => cache.attend(new Float32Array(3 * headDim))).toThrow(ShapeError);
    expect(() => cache.attend(new Float32Array(2 * headDim), { tileSize: 0 })).toThrow(ArgumentError);
  });
});

describe('paged equals contiguous bit for bit', () => {
  const dtypes: [DType, DType, boolean][] = [
    ['f32', 'f32', false],
    ['f16', 'f16', false],
    ['q8_0', 'q8_0', false],
    ['q4_0', 'q8_0', true],
    ['q4_0', 'q4_0', true],
  ];
  it.each(dtypes)('keys %s, values %s, rotation %s', (keyDType, valueDType, rotateKeys) => {
    const options = { ...sizes, keyDType, valueDType, rotateKeys };
    const contiguous = createContiguousCache({ ...options, capacity: 100 });
    const pool = createKvPool({ ...options, numBlocks: 40, blockSize: 7 });
    const other = createPagedCache(pool);
    const paged = createPagedCache(pool);
    const rngs = [createRng(9), createRng(9)];
    const q = gaussians(createRng(10), numHeads * headDim);
    for (const [index, step] of [5, 1, 30, 1, 1, -10, 9, 20, 1, -50, 40].entries()) {
      [contiguous, paged].forEach((cache, which) => {
        if (step < 0) {
          cache.truncate(cache.numTokens + step);
        } else {
          const k = gaussians(rngs[which], step * numKvHeads * headDim);
          cache.append(k, gaussians(rngs[which], step * numKvHeads * valueDim));
        }
      });
      if (index % 3 === 0) fill(other, index, 4); // blocks of the two sequences alternate
      const expected = contiguous.attend(q);
      expect(paged.attend(q)).toEqual(expected);
      expect(paged.fork().attend(q)).toEqual(expected);
    }
  });
});

describe('dtypes', () => {
  it('stores what the codecs store', () => {
    const cache = createContiguousCache({ ...sizes, capacity: 3, keyDType: 'q4_0', valueDType: 'q8_0' });
    const rng = createRng(4);
    const k = gaussians(rng, 3 * numKvHeads * headDim);
    const v = gaussians(rng, 3 * numKvHeads * valueDim);
    cache.append(k, v);
    const roundTrip = (dtype: DType, values: Float32Array): Float32Array => {
      const bytes = new Uint8Array(sizeOf(dtype, values.length));
      encode(dtype, values, bytes);
      const out = new Float32Array(values.length);
      decode(dtype, bytes, out);
      return out;
    };
    const [expectedKeys, expectedValues] = [roundTrip('q4_0', k), roundTrip('q8_0', v)];
    for (let t = 0; t < 3; t++) {
      for (let head = 0; head < numKvHeads; head++) {
        const key = new Float32Array(headDim);
        const value = new Float32Array(valueDim);
        cache.readKey(t, head, key, 0);
        cache.readValue(t, head, value, 0);
        const row = t * numKvHeads + head;
        expect(key).toEqual(expectedKeys.slice(row * headDim, (row + 1) * headDim));
        expect(value).toEqual(expectedValues.slice(row * valueDim, (row + 1) * valueDim));
      }
    }
  });

  it('refuses values that would spoil a block, dtypes that cannot be written, and a full cache; nothing changes', () => {
    const cache = createContiguousCache({ ...sizes, capacity: 3, keyDType: 'q8_0' });
    const k = new Float32Array(numKvHeads * headDim);
    const v = new Float32Array(numKvHeads * valueDim);
    expect(() =>
      cache.append(
        k.map(() => NaN),
        v,
      ),
    ).toThrow(ArgumentError);
    expect(() => cache.append(k, v.subarray(1))).toThrow(ShapeError);
    expect(cache.numTokens).toBe(0);
    for (let i = 0; i < 3; i++) cache.append(k, v);
    expect(() => cache.append(k, v)).toThrow(CapacityError);
    expect(cache.numTokens).toBe(3);
    expect(() => createContiguousCache({ ...sizes, capacity: 3, keyDType: 'iq2_xxs', headDim: 256 })).toThrow(
      ArgumentError,
    );
    expect(() => createContiguousCache({ ...sizes, capacity: 0 })).toThrow(ArgumentError);
  });
});

describe('rotation', () => {
  it('is its own inverse and keeps products', () => {
    const rng = createRng(1);
    for (const dim of [2, 32, 96, 128]) {
      const [a, b] = [gaussians(rng, dim), gaussians(rng, dim)];
      const dot = (x: Float32Array, y: Float32Array): number => x.reduce((sum, value, i) => sum + value * y[i], 0);
      const [ra, rb] = [a.slice(), b.slice()];
      rotateRows(ra, dim);
      rotateRows(rb, dim);
      // at most log2(128) + 1 = 8 roundings per component of either side
      const bound = 16 * f32Ulp * 2 * Math.sqrt(dot(a, a) * dot(b, b));
      expect(Math.abs(dot(ra, rb) - dot(a, b))).toBeLessThanOrEqual(bound);
      rotateRows(ra, dim);
      ra.forEach((value, i) => expect(Math.abs(value - a[i])).toBeLessThanOrEqual(16 * f32Ulp * Math.sqrt(dot(a, a))));
    }
    expect(() => rotateRows(new Float32Array(3), 3)).toThrow(ArgumentError);
  });

  it('makes 4-bit keys with outlier channels more exact', () => {
    const errorWith = (rotateKeys: boolean): number => {
      const options = { ...sizes, capacity: 64 };
      const exact = createContiguousCache(options);
      const rounded = createContiguousCache({ ...options, keyDType: 'q4_0', rotateKeys });
      const rng = createRng(12);
      const k = gaussians(rng, 64 * numKvHeads * headDim).map((value, i) => (i % headDim === 5 ? value * 20 : value));
      const v = gaussians(rng, 64 * numKvHeads * valueDim);
      for (const cache of [exact, rounded]) cache.append(k, v);
      const q = gaussians(rng, numHeads * headDim).map((value, i) => (i % headDim === 5 ? value * 0.05 : value));
      const [a, b] = [exact.attend(q), rounded.attend(q)];
      return a.reduce((sum, value, i) => sum + (value - b[i]) ** 2, 0);
    };
    expect(errorWith(true)).toBeLessThan(errorWith(false));
  });
});

describe('sinks and window without touching stored keys', () => {
  /** Rotary embedding of one row at a position, halves paired (NeoX), in f64. */
  const { frequencies } = ropeFrequencies({ base: 10_000, rotaryDim: headDim });
  const rope = (row: Float32Array, position: number): Float32Array => {
    const half = headDim / 2;
    return row.map((_, i) => {
      const angle = position * frequencies[i % half];
      const [x, y] = [row[i % half], row[(i % half) + half]];
      return i < half ? x * Math.cos(angle) - y * Math.sin(angle) : x * Math.sin(angle) + y * Math.cos(angle);
    });
  };
  const ropeHeads = (rows: Float32Array, position: number): Float32Array => {
    const out = rows.slice();
    for (let i = 0; i < rows.length; i += headDim) out.set(rope(rows.subarray(i, i + headDim), position), i);
    return out;
  };

  it('two query phases equal keys rotated anew at positions 0 .. S + W - 1', () => {
    const options = { window: 20, numSinks: 4 };
    const total = options.window + options.numSinks;
    const pool = createKvPool({ ...sizes, numBlocks: 10, blockSize: 4 });
    const cache = createPagedCache(pool);
    const rng = createRng(20);
    const rawKeys: Float32Array[] = [];
    const rawValues: Float32Array[] = [];
    for (let position = 0; position < 300; position++) {
      const k = gaussians(rng, numKvHeads * headDim);
      const v = gaussians(rng, numKvHeads * valueDim);
      rawKeys.push(k);
      rawValues.push(v);
      cache.evict(expiredSlots(cache.sequence, options));
      cache.append(ropeHeads(k, position), v);
    }
    expect(cache.numSlots).toBe(total);
    const last = 299;
    const q = gaussians(rng, numHeads * headDim);
    const states = createStates(numHeads, valueDim);
    const sinkPosition = sinkQueryPosition(last, options);
    attendPartial(cache, ropeHeads(q, sinkPosition), states, { maxPosition: options.numSinks - 1 });
    attendPartial(cache, ropeHeads(q, last), states, { minPosition: last - options.window + 1 });
    const twoPhases = finishStates(states);

    const remapped = createContiguousCache({ ...sizes, capacity: total });
    const kept = [...Array(options.numSinks).keys(), ...Array.from({ length: options.window }, (_, i) => 280 + i)];
    kept.forEach((position, index) => remapped.append(ropeHeads(rawKeys[position], index), rawValues[position]));
    const expected = remapped.attend(ropeHeads(q, total - 1));
    // rotated keys and queries are rounded to f32: logits of norm |q| |k| / sqrt(H) move by less than 4 ulp of it, and
    // outputs by that times the spread of the values (< 12), besides the roundings of the states
    const norm = (x: Float32Array): number => Math.sqrt(x.reduce((sum, value) => sum + value * value, 0));
    const largest = Math.max(...rawKeys.map(norm)) * norm(q);
    const bound = (4 * (largest / Math.sqrt(headDim)) * 12 + 8 * 6) * f32Ulp;
    expected.forEach((value, i) => expect(Math.abs(twoPhases[i] - value)).toBeLessThanOrEqual(bound));
  });
});
