import { ropeFrequencies } from '@winnow/ops';
import { ArgumentError, createRng, ShapeError, type DType } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { attentionTruth } from '../../test/attention-truth.js';
import { testBackends } from '../../test/backends.js';
import { gaussians } from '../../test/random-kv.js';
import {
  createContiguousCache,
  createPagedCache,
  createStates,
  expiredSlots,
  finishStates,
  KvPool,
  sinkQueryPosition,
  type KvCache,
} from '../index.js';

const numKvHeads = 2;
const numHeads = 6;
const headDim = 32;
const valueDim = 64;
const sizes = { numKvHeads, headDim, valueDim };
const f32Unit = 2 ** -24;

async function fill(cache: KvCache, seed: number, ...steps: number[]): Promise<void> {
  const rng = createRng(seed);
  for (const step of steps) {
    await cache.append(gaussians(rng, step * numKvHeads * headDim), gaussians(rng, step * numKvHeads * valueDim));
  }
}

function expectClose(actual: Float32Array, expected: ArrayLike<number>, bounds: ArrayLike<number>): void {
  expect(actual).toHaveLength(expected.length);
  let worst = 0;
  actual.forEach((value, i) => (worst = Math.max(worst, Math.abs(value - expected[i]) / bounds[i])));
  expect(worst).toBeLessThanOrEqual(1);
}

describe.each(testBackends)('attend on $name', ({ name, backend }) => {
  it.each(['f32', 'q8_0'] as const)('equals a full softmax over keys in %s', async (keys) => {
    const dtype = { keys, values: 'f16' } as const;
    await using pool = await KvPool.create({ ...sizes, dtype, backend }, { numBlocks: 60, blockSize: 4 });
    await fill(createPagedCache(pool), 3, 3); // another sequence takes the first blocks
    const cache = createPagedCache(pool);
    await fill(cache, 1, 147, 1, 1, 1);
    const q = gaussians(createRng(2), numHeads * headDim);
    for (const position of [0, 120, 149]) {
      const { out, bounds } = await attentionTruth(cache, q, position, { name });
      expectClose(await cache.attend(q, { position }), out, bounds);
    }
    expect(await cache.attend(q)).toEqual(await cache.attend(q, { position: 149 }));
  });

  it('returns the probability of each slot', async () => {
    const cache = await createContiguousCache({ ...sizes, backend }, 50);
    await fill(cache, 1, 50);
    const q = gaussians(createRng(2), numHeads * headDim);
    const masses = new Float32Array(50).fill(1);
    await cache.attend(q, { masses, position: 30 });
    const truth = await attentionTruth(cache, q, 30, { name });
    // probabilities of 6 heads: as exact as an output whose largest value is 1, plus one rounding of the sum
    const bound = numHeads * (Math.max(...truth.bounds) + 2 * f32Unit);
    masses.forEach((mass, slot) => expect(Math.abs(mass - 1 - truth.masses[slot])).toBeLessThanOrEqual(bound));
    expect(masses.slice(31).every((mass) => mass === 1)).toBe(true);
    await cache.pool.close();
  });

  it('applies a soft cap and a window', async () => {
    const cache = await createContiguousCache({ ...sizes, backend }, 50);
    await fill(cache, 1, 50);
    const q = gaussians(createRng(2), numHeads * headDim);
    const [all, capped, recent] = [
      await cache.attend(q),
      await cache.attend(q, { softCap: 1e-9 }), // the cap makes all logits almost equal
      await cache.attend(q, { window: 7, scale: 0 }),
    ];
    const [mean, windowMean] = [new Float64Array(valueDim), new Float64Array(valueDim)];
    for (let slot = 0; slot < 50; slot++) {
      const value = await cache.readValue(slot, 0);
      value.forEach((each, i) => (mean[i] += each / 50));
      if (slot >= 43) value.forEach((each, i) => (windowMean[i] += each / 7));
    }
    const bounds = new Float64Array(valueDim).fill(6 * (2e-9 + 60 * f32Unit)); // |v| < 6, sums of up to 50 terms
    expectClose(capped.subarray(0, valueDim), mean, bounds);
    expectClose(recent.subarray(0, valueDim), windowMean, bounds);
    expectClose((await cache.meanValue()).subarray(0, valueDim), mean, bounds);
    expect(all).not.toEqual(capped);
    await cache.pool.close();
  });
});

describe.each(testBackends)('calls of attend on $name', ({ backend }) => {
  it('give zeros when nothing is visible, and reject queries of the wrong size', async () => {
    await using pool = await KvPool.create({ ...sizes, backend }, { numBlocks: 1, blockSize: 50 });
    const cache = createPagedCache(pool);
    expect((await cache.attend(new Float32Array(numHeads * headDim))).every((value) => value === 0)).toBe(true);
    await expect(cache.attend(new Float32Array(3 * headDim))).rejects.toThrow(ShapeError);
    await expect(cache.attend(new Float32Array(2 * headDim), { position: 1.5 })).rejects.toThrow(ArgumentError);
    await expect(cache.attend(new Float32Array(2 * headDim), { window: -1 })).rejects.toThrow(ArgumentError);
    await expect(cache.attend(new Float32Array(2 * headDim), { signal: AbortSignal.abort('no') })).rejects.toBe('no');
  });

  it('cache the programs of the latest parameters, and run one at a time', async () => {
    const cache = await createContiguousCache({ ...sizes, backend }, 50);
    await fill(cache, 1, 20);
    const q = gaussians(createRng(2), numHeads * headDim);
    const windows = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
    const first = await Promise.all(windows.map((window) => cache.attend(q, { window })));
    expect(await Promise.all(windows.map((window) => cache.attend(q, { window })))).toEqual(first);
    await cache.pool.close();
  });
});

describe.each(testBackends)('paged equals contiguous on $name', ({ name, backend }) => {
  const dtypes: [DType, DType, boolean][] = [
    ['f32', 'f32', false],
    ['f16', 'f16', false],
    ['q8_0', 'q8_0', false],
    ['q4_0', 'q8_0', true],
    ['q4_0', 'q4_0', true],
  ];
  it.each(dtypes)('keys %s, values %s, rotation %s', async (keys, values, rotateKeys) => {
    const options = { ...sizes, dtype: { keys, values }, rotateKeys, backend };
    const contiguous = await createContiguousCache(options, 100);
    await using pool = await KvPool.create(options, { numBlocks: 40, blockSize: 7 });
    const other = createPagedCache(pool);
    const paged = createPagedCache(pool);
    const rngs = [createRng(9), createRng(9)];
    const q = gaussians(createRng(10), numHeads * headDim);
    const heads = [...Array(numKvHeads).keys()];
    for (const [index, step] of [5, 1, 30, 1, 1, -10, 9, 20, 1, -50, 40].entries()) {
      for (const [which, cache] of [contiguous, paged].entries()) {
        if (step < 0) {
          await cache.truncate(cache.numTokens + step);
        } else {
          const k = gaussians(rngs[which], step * numKvHeads * headDim);
          await cache.append(k, gaussians(rngs[which], step * numKvHeads * valueDim));
        }
      }
      if (index % 3 === 0) await fill(other, index, 4); // blocks of the two sequences alternate
      const last = contiguous.numSlots - 1;
      for (const head of heads) expect(await paged.readKey(last, head)).toEqual(await contiguous.readKey(last, head));
      const expected = await contiguous.attend(q);
      const actual = await paged.attend(q);
      // the reference processes key by key, so blocks change no bit; kernels process tiles within blocks
      if (name === 'reference') expect(actual).toEqual(expected);
      else if (!rotateKeys)
        expectClose(
          actual,
          expected,
          (await attentionTruth(paged, q, 99, { name })).bounds.map((b) => 2 * b),
        );
      expect(await paged.fork().attend(q)).toEqual(actual);
    }
    await contiguous.pool.close();
  });
});

describe.each(testBackends)('sinks and window without changes to stored keys on $name', ({ backend }) => {
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

  it('two query positions equal keys re-rotated at positions 0 .. S + W - 1', async () => {
    const options = { window: 20, numSinks: 4 };
    const total = options.window + options.numSinks;
    await using pool = await KvPool.create({ ...sizes, backend }, { numBlocks: 10, blockSize: 4 });
    const cache = createPagedCache(pool);
    const rng = createRng(20);
    const raw: { k: Float32Array; v: Float32Array }[] = [];
    for (let position = 0; position < 300; position++) {
      const row = { k: gaussians(rng, numKvHeads * headDim), v: gaussians(rng, numKvHeads * valueDim) };
      raw.push(row);
      await cache.evict(expiredSlots(cache.sequence, options));
      await cache.append(ropeHeads(row.k, position), row.v);
    }
    expect(cache.numSlots).toBe(total);
    const q = gaussians(rng, numHeads * headDim);
    const states = createStates(numHeads, valueDim);
    const sinkPosition = sinkQueryPosition(299, options);
    await cache.attendPartial(ropeHeads(q, sinkPosition), states, { position: options.numSinks - 1 });
    await cache.attendPartial(ropeHeads(q, 299), states, { window: options.window });
    const twoPhases = finishStates(states);

    const remapped = await createContiguousCache({ ...sizes, backend }, total);
    const kept = [...Array(options.numSinks).keys(), ...Array.from({ length: options.window }, (_, i) => 280 + i)];
    for (const [index, position] of kept.entries()) {
      await remapped.append(ropeHeads(raw[position].k, index), raw[position].v);
    }
    const expected = await remapped.attend(ropeHeads(q, total - 1));
    // rotated keys and queries are rounded to f32: logits of norm |q| |k| / sqrt(H) move by less than 4 units of it, those of a
    // kernel in f32 by H + 2 units more; outputs by that times the spread of the values (< 12), besides the roundings of the
    // states and of sums over 24 keys
    const norm = (x: Float32Array): number => Math.sqrt(x.reduce((sum, value) => sum + value * value, 0));
    const largest = Math.max(...raw.map(({ k }) => norm(k))) * norm(q);
    const [ofLogits, ofSums] = backend.name === 'reference' ? [4, 8] : [4 + 2 * (headDim + 2), 8 + 4 * 28];
    const bound = (ofLogits * (largest / Math.sqrt(headDim)) * 12 + ofSums * 6) * f32Unit;
    expectClose(twoPhases, expected, new Float64Array(expected.length).fill(bound));
    await remapped.pool.close();
  });
});
