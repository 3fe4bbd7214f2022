import { createWasmBackend } from '@winnow/backend-wasm';
import { ArgumentError, FormatError } from '@winnow/tensor';
import { sampled } from '@winnow/test-utils';
import { afterAll, describe, expect, test } from 'vitest';
import { trueValues } from '../../test/block-truth.js';
import { goldenBlocks, predictableBlock, randomBlock, randomRow } from '../../test/blocks.js';
import { fileOf, open, sidecarBytes } from '../../test/sidecars.js';
import { columnNorms, weightedMagnitudes } from '../blocks/feed-forward-weights.js';
import type { SidecarContent } from '../sidecar/sidecar-content.js';
import { predictorKinds, type PredictorKind, type SparseLayer } from '../sidecar/sidecar.js';
import { calibrate } from './calibrate.js';
import { plainSource, type CalibrationSource } from './calibration-source.js';
import type { CheckpointStore } from './checkpoint.js';
import { measureSidecar } from './measure-sidecar.js';
import type { CalibrateOptions, CalibrationProgress } from './options.js';
import { groupsOf, numStepsOf, splitSamples, totalLength } from './samples.js';

const backend = await createWasmBackend({ numThreads: 1, activations: 'f32' });
afterAll(() => backend.dispose());

const samples = Array.from({ length: 40 }, (_, i) => Int32Array.from({ length: 32 }, (_unused, j) => i * 32 + j));
const easy = predictableBlock({ hiddenDim: 48, ffnDim: 96, directions: 6 }, 1);
const source = plainSource({ backend, blocks: [easy.weights], hiddenState: easy.hiddenState });
const base: CalibrateOptions = { backend, samples, rank: 32, epochs: 6, learningRate: 0.01 };

/** Stores checkpoints in memory; fails at the n-th save like a process that is killed. */
class MemoryStore implements CheckpointStore {
  content: Uint8Array | undefined;
  numSaves = 0;
  killAt = Infinity;

  async load() {
    return this.content === undefined ? undefined : open(this.content);
  }

  async save(content: SidecarContent): Promise<void> {
    if (++this.numSaves > this.killAt) throw new Error('killed');
    this.content = await fileOf(content);
  }
}

describe('calibrate', () => {
  test('finds a predictor that skips most neurons at the requested recall', async () => {
    const { layers, modelHash, config } = await calibrate(source, base);
    expect({ modelHash, target: config.target, numTokens: config.numTokens }).toEqual({
      modelHash: 'plain',
      target: { recall: 0.95 },
      numTokens: 1280,
    });
    const [{ report, predictor, frequencies }] = layers as [(typeof layers)[0]];
    expect(predictor.kind).toBe('low-rank');
    expect(report.recall).toBeGreaterThan(0.93); // 128 held-out tokens
    expect(report.activeRatio).toBeLessThan(0.3);
    expect(report.activeRatio).toBeGreaterThanOrEqual(report.trueRatio * 0.9);
    expect(report.energy).toBeGreaterThan(0.88); // 0.93 of the neurons that have 0.95 of it
    expect(report.sparseBytes).toBeLessThan(report.denseBytes);
    const mean = frequencies.reduce((sum, x) => sum + x, 0) / frequencies.length;
    expect(mean).toBeCloseTo(report.trueRatio, 1);
  });

  test('training helps where neurons differ in their contributions, and is dropped where it does not help', async () => {
    const activeRatio = async (own: CalibrationSource, epochs: number): Promise<number> =>
      (await calibrate(own, { ...base, epochs })).layers[0]?.report.activeRatio as number;
    // a rank of 32 represents these gates exactly, and training on a thousand tokens makes it worse
    expect(await activeRatio(source, 6)).toBe(await activeRatio(source, 0));
    const uneven = { ...easy.weights, down: easy.weights.down.map((x, i) => x * (i % 96 < 48 ? 4 : 0.25)) };
    const own = plainSource({ backend, blocks: [uneven], hiddenState: easy.hiddenState });
    expect(await activeRatio(own, 6)).toBeLessThan((await activeRatio(own, 0)) * 0.9);
  });

  test.each<[PredictorKind, boolean]>([
    ['low-rank', true],
    ['low-rank', false],
    ['low-rank-product', true],
    ['gate-threshold', true],
    ['gate-threshold', false],
    ['input-threshold', true],
    ['input-threshold', false],
  ])('%s, gated %s, at a sparsity', async (predictor, isGated) => {
    const weights = randomBlock({ activation: isGated ? 'silu' : 'gelu-erf', isGated, hiddenDim: 32, ffnDim: 64 }, 3);
    const own = plainSource({ backend, blocks: [weights], hiddenState: (token) => randomRow(32, token) });
    const { layers } = await calibrate(own, { ...base, epochs: 1, predictor, targetSparsity: 0.6 });
    const [{ report, predictor: tables }] = layers as [(typeof layers)[0]];
    expect(tables.kind).toBe(predictor);
    // 128 tokens of 64 neurons choose, 128 others report: 3 standard errors of a share, neurons of one token go together
    expect(Math.abs(report.activeRatio - 0.4)).toBeLessThan(0.08);
    expect(report.recall).toBeGreaterThan(report.activeRatio); // better than random
    expect(report.cosine).toBeGreaterThan(0.5);
    // a rank of 32 represents these gates and ups exactly
    if (predictor === 'low-rank-product') expect(report.recall).toBeGreaterThan(0.9);
    if (predictor === 'input-threshold') expect(Math.abs(report.inputRatio - 0.4)).toBeLessThan(0.08);
    else expect(report.inputRatio).toBe(1);
  });
});

describe('predictors and targets', () => {
  test('low-rank products include the biases of the FFN', async () => {
    const weights = randomBlock({ activation: 'silu', isGated: true, hiddenDim: 32, ffnDim: 64 }, 3);
    const biased = { ...weights, upBias: randomRow(64, 5).map((x) => 3 * x) };
    const own = plainSource({ backend, blocks: [biased], hiddenState: (token) => randomRow(32, token) });
    const options = { ...base, predictor: 'low-rank-product', targetSparsity: 0.6 } as const;
    const [{ report, predictor }] = (await calibrate(own, options)).layers as [SparseLayer];
    expect(predictor).toMatchObject({ up: { bias: biased.upBias } });
    expect(report.energy).toBeGreaterThan(0.97); // of 60 % skipped: all but the smallest
  });

  test('a target sparsity is a mean: layers that lose less skip more', async () => {
    const own = { activation: 'silu', isGated: true, hiddenDim: 32, ffnDim: 64 } as const;
    const even = randomBlock(own, 3);
    // few neurons of this layer make up most of its output
    const uneven = { ...even, down: even.down.map((x, i) => x * (i % 64 < 8 ? 8 : 1)) };
    const two = plainSource({ backend, blocks: [even, uneven], hiddenState: (token) => randomRow(32, token) });
    const { layers } = await calibrate(two, { ...base, predictor: 'gate-threshold', targetSparsity: 0.6 });
    const [a, b] = layers.map(({ report }) => report) as [(typeof layers)[0]['report'], (typeof layers)[0]['report']];
    expect(Math.abs((a.activeRatio + b.activeRatio) / 2 - 0.4)).toBeLessThan(0.06);
    expect(b.activeRatio).toBeLessThan(a.activeRatio - 0.1);
    expect(Math.abs(a.energy - b.energy)).toBeLessThan(0.05);
  });

  test('by default the activation determines the predictor', async () => {
    const kindOf = async (
      activation: 'relu' | 'silu',
      isGated: boolean,
      hiddenDim = 32,
    ): Promise<string | undefined> => {
      const blocks = [randomBlock({ activation, isGated, hiddenDim, ffnDim: 32 }, 3)];
      const own = plainSource({ backend, blocks, hiddenState: (token) => randomRow(hiddenDim, token) });
      return (await calibrate(own, { ...base, epochs: 0 })).layers[0]?.predictor.kind;
    };
    expect(await kindOf('relu', true)).toBe('low-rank');
    expect(await kindOf('silu', true)).toBe('low-rank-product');
    expect(await kindOf('silu', true, 544)).toBe('gate-threshold');
    expect(await kindOf('silu', false)).toBe('low-rank');
  });
});

describe('needed neurons', () => {
  test('a neuron is needed if its contribution exceeds the threshold that keeps the energy', async () => {
    const { weights, golden, rows } = goldenBlocks()[2] as ReturnType<typeof goldenBlocks>[0];
    const own = plainSource({ backend, blocks: [weights], hiddenState: (token) => rows[token] as Float32Array });
    const tokens = Int32Array.of(0, 1, 2);
    const options = {
      ...base,
      samples: [tokens, tokens, tokens],
      predictor: 'gate-threshold',
      energyShare: 0.9,
    } as const;
    const [layer] = (await calibrate(own, options)).layers as [Awaited<ReturnType<typeof calibrate>>['layers'][0]];
    const sorted = golden.contributions.toSorted((a, b) => b - a);
    const exact = sorted[golden.numActiveAt90 - 1] as number;
    expect(layer.contributionThreshold).toBeLessThanOrEqual(exact);
    expect(layer.contributionThreshold).toBeGreaterThan(exact * (1 - 1 / 64)); // the width of a bin
    const norms = columnNorms(weights.down, weights.hiddenDim, weights.ffnDim);
    expect(layer.downNorms).toEqual(norms);
    const contributions = rows.map((x) => weightedMagnitudes(Float32Array.from(trueValues(weights, x)), norms));
    const frequencies = norms.map(
      (_, id) => contributions.filter((c) => (c[id] as number) >= layer.contributionThreshold).length / 3,
    );
    layer.frequencies.forEach((x, id) => expect(x).toBeCloseTo(frequencies[id] as number, 6));
  });

  test('an FFN with zero output needs no neurons', async () => {
    const weights = randomBlock({ activation: 'relu', isGated: true, hiddenDim: 32, ffnDim: 32 }, 3);
    const own = plainSource({
      backend,
      blocks: [{ ...weights, down: weights.down.map(() => 0) }],
      hiddenState: (t) => randomRow(32, t),
    });
    for (const predictor of predictorKinds) {
      const sidecar = await calibrate(own, { ...base, samples: samples.slice(0, 6), predictor, epochs: 1 });
      expect(sidecar.layers[0]?.report).toMatchObject({ trueRatio: 0, activeRatio: 0, recall: 1, cosine: 1 });
      await sidecarBytes(sidecar);
    }
  });
});

describe('reports and progress', () => {
  test('the report equals a measurement of the sidecar on the same text', async () => {
    const some = samples.slice(0, 20);
    for (const predictor of predictorKinds) {
      const sidecar = await calibrate(source, { ...base, samples: some, predictor, epochs: 1 });
      const { verify } = splitSamples(some, 1);
      const reports = await measureSidecar(source, sidecar, { backend, samples: verify });
      expect(reports).toEqual(sidecar.layers.map(({ report }) => report));
    }
  });

  test('progress covers every phase', async () => {
    const seen: CalibrationProgress[] = [];
    await calibrate(source, { ...base, epochs: 2, onProgress: (progress) => seen.push(progress) });
    const done = seen.map(({ doneTokens }) => doneTokens);
    expect(done).toEqual(done.toSorted((a, b) => a - b));
    expect(seen.at(-1)).toEqual({ phase: 'verify', doneTokens: 3328, totalTokens: 3328 }); // 3 * 1024 + 2 * 128
    expect(new Set(seen.map(({ phase }) => phase)).size).toBe(4);
  });

  test('a signal aborts a calibration', async () => {
    const controller = new AbortController();
    const reason = new Error('enough');
    const onProgress = ({ phase }: CalibrationProgress): void => {
      if (phase === 'train') controller.abort(reason);
    };
    await expect(calibrate(source, { ...base, signal: controller.signal, onProgress })).rejects.toBe(reason);
  });
});

const blocks = [easy.weights, randomBlock({ activation: 'relu', isGated: true, hiddenDim: 48, ffnDim: 96 }, 9)];
const two = plainSource({ backend, blocks, hiddenState: easy.hiddenState });
// groups of 256 tokens: eight samples
const common: CalibrateOptions = { ...base, samples: samples.slice(0, 30), epochs: 2, memoryBytes: 1 };
/** Two groups for training. */
const brief = { ...common, samples: samples.slice(0, 14), epochs: 1 };

describe('checkpoints', () => {
  test.each(['low-rank', 'low-rank-product'] as const)(
    'of %s: killed at any save and resumed, the sidecar is bit-identical',
    async (predictor) => {
      const options = { ...common, predictor };
      const whole = new MemoryStore();
      const expected = await sidecarBytes(await calibrate(two, { ...options, checkpoint: whole }));
      expect(await sidecarBytes(await calibrate(two, options))).toEqual(expected);
      expect(whole.numSaves).toBe(7); // two within each of two phases, three between phases
      const saves = Array.from({ length: whole.numSaves }, (_, save) => save);
      for (const killAt of sampled(saves, 4, predictor === 'low-rank' ? 0 : 2)) {
        const store = new MemoryStore();
        store.killAt = killAt;
        await expect(calibrate(two, { ...options, checkpoint: store })).rejects.toThrow('killed');
        store.killAt = Infinity;
        let numTraced = 0;
        const counted: CalibrationSource = {
          ...two,
          trace: (tokens, onLayer) => {
            numTraced += tokens.length;
            return two.trace(tokens, onLayer);
          },
        };
        expect(await sidecarBytes(await calibrate(counted, { ...options, checkpoint: store }))).toEqual(expected);
        if (killAt > 3) expect(numTraced).toBeLessThan(2 * 768);
      }
    },
  );

  test('a calibration that is killed repeatedly still finishes', async () => {
    const store = new MemoryStore();
    const expected = await sidecarBytes(await calibrate(two, brief));
    for (let attempt = 0; attempt < 20; attempt++) {
      store.killAt = store.numSaves + 1;
      const outcome = await calibrate(two, { ...brief, checkpoint: store }).catch((error: Error) => error.message);
      if (outcome === 'killed') continue;
      expect(await sidecarBytes(outcome as Awaited<ReturnType<typeof calibrate>>)).toEqual(expected);
      expect(attempt).toBeGreaterThan(3);
      return;
    }
    expect.fail('no progress');
  });
});

let killedContent: Promise<Uint8Array> | undefined;

async function calibrateUntilKilled(): Promise<Uint8Array> {
  const store = new MemoryStore();
  store.killAt = 2;
  await expect(calibrate(two, { ...brief, checkpoint: store })).rejects.toThrow('killed');
  return store.content as Uint8Array;
}

/** A store with the checkpoint of a calibration that was killed at its second save, which runs once. */
async function killedStore(): Promise<MemoryStore> {
  killedContent ??= calibrateUntilKilled();
  const store = new MemoryStore();
  store.content = (await killedContent).slice();
  return store;
}

describe('mismatched checkpoints', () => {
  test.each<[string, Partial<CalibrateOptions>]>([
    ['another seed', { seed: 2 }],
    ['other text', { samples: samples.slice(0, 12) }],
    ['another target', { targetSparsity: 0.5 }],
    ['another predictor', { predictor: 'gate-threshold' }],
  ])('of %s are ignored', async (_name, change) => {
    const store = await killedStore();
    const notices: string[] = [];
    const other = { ...brief, ...change };
    const resumed = await calibrate(two, { ...other, checkpoint: store, onNotice: (text) => notices.push(text) });
    expect(notices).toEqual(['of another calibration: starting over']);
    expect(await sidecarBytes(resumed)).toEqual(await sidecarBytes(await calibrate(two, other)));
  });

  test('are rejected if damaged', async () => {
    const store = await killedStore();
    const content = store.content as Uint8Array;
    for (const at of [content.length - 1, content.length - 1000]) {
      store.content = content.slice();
      store.content[at] = (store.content[at] as number) ^ 1;
      await expect(calibrate(two, { ...brief, checkpoint: store })).rejects.toThrow(FormatError);
    }
    store.content = await fileOf({ tensors: [], metadata: {} });
    await expect(calibrate(two, { ...brief, checkpoint: store })).rejects.toThrow(/expected a checkpoint/);
  });
});

describe('invalid options', () => {
  test.each<[string, Partial<CalibrateOptions>, RegExp]>([
    ['two samples', { samples: samples.slice(0, 2) }, /samples: expected at least 3, got 2/],
    ['an empty sample', { samples: [...samples, new Int32Array()] }, /samples of at least one token/],
    ['both targets', { targetRecall: 0.9, targetSparsity: 0.5 }, /one of them/],
    ['a recall of 0', { targetRecall: 0 }, /targetRecall/],
    ['a sparsity of 1', { targetSparsity: 1 }, /targetSparsity/],
    ['an energy of 2', { energyShare: 2 }, /energyShare/],
    ['a rank of 33', { rank: 33 }, /rank: expected a multiple of 32/],
    ['half an epoch', { epochs: 0.5 }, /epochs/],
    ['no rate', { learningRate: 0 }, /learningRate/],
    ['a seed of 0.5', { seed: 0.5 }, /seed/],
    ['another predictor', { predictor: 'oracle' as never }, /predictor: expected auto/],
  ])('%s', async (_name, change, message) => {
    const running = calibrate(source, { ...base, ...change });
    await expect(running).rejects.toThrow(ArgumentError);
    await expect(running).rejects.toThrow(message);
  });

  test('a model without FFNs, a sidecar with more layers', async () => {
    await expect(calibrate({ ...source, layers: [] }, base)).rejects.toThrow(/mixtures of experts/);
    const sidecar = await calibrate(source, { ...base, epochs: 0 });
    await expect(measureSidecar({ ...source, layers: [] }, sidecar, { backend, samples })).rejects.toThrow(
      ArgumentError,
    );
  });
});

test('samples are split by the seed and grouped by their tokens', () => {
  const { train, select, verify } = splitSamples(samples, 3);
  expect([train.length, select.length, verify.length]).toEqual([32, 4, 4]);
  expect(new Set([...train, ...select, ...verify]).size).toBe(40);
  expect(splitSamples(samples, 4).verify).not.toEqual(verify);
  const groups = groupsOf(train, 100);
  expect(groups.map(totalLength)).toEqual([...Array<number>(10).fill(96), 64]);
  expect(groupsOf([new Int32Array(500)], 100)).toHaveLength(1);
  expect(numStepsOf(groupsOf(train, 1e9), 3)).toBe(12);
});
