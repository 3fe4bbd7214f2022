/**
 * Searches on a model whose divergences and times are formulas: layer l under a policy with k keys changes logit l by
 * `strength[l] / k`, so that divergences of layers add up, and takes `k` units of time, dense 64.
 */
import type { GenerateOptions, LogitsOptions, Model } from '@winnow/engine';
import {
  readTunedPolicy,
  formatTunedPolicy,
  parsePolicy,
  resolvePolicy,
  type AttentionPolicy,
} from '@winnow/sparse-attention';
import { ArgumentError, CapacityError, createRng } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import type { OpenModel } from '../configuration.js';
import { allocate, type Choice } from './allocate.js';
import type { TuneOptions, TuneReport, UniformComparison } from './options.js';
import { tuneAttention } from './tune-attention.js';
import { formatTuning } from '../report/tune-text.js';

const strength = [16, 1, 1, 4];
const numLayers = strength.length;
const denseKeys = 64;

const keysOf = (policy: AttentionPolicy): number =>
  policy.kind === 'dense' ? denseKeys : 'window' in policy ? policy.window : denseKeys;
/** `sparq` reads few pairs, but takes longer than dense attention. */
const unitsOf = (policy: AttentionPolicy): number => (policy.kind === 'sparq' ? 80 : keysOf(policy));

interface FakeOptions {
  /** Added to the last logit where layers have different policies, of texts that begin with a token from `mixedFrom` on. */
  readonly mixed?: number;
  readonly mixedFrom?: number;
  /** Added to the last logit of decoded tokens. */
  readonly rounding?: number;
}

function rowOf(policies: readonly AttentionPolicy[], change: number): Float32Array {
  const logits = policies.map((policy, layer) =>
    policy.kind === 'dense' ? 0 : (strength[layer] as number) / keysOf(policy),
  );
  const all = [...logits, change];
  const sum = Math.log(all.reduce((total, logit) => total + Math.exp(logit), 0));
  return Float32Array.from(all, (logit) => logit - sum);
}

/** Counts what was opened. A window of 5 is refused. */
function fake({ mixed = 0, mixedFrom = 0, rounding = 0 }: FakeOptions = {}) {
  const opened: string[] = [];
  const open: OpenModel = ({ attention }) => {
    const layers = resolvePolicy(attention, { numLayers });
    opened.push(JSON.stringify(layers));
    if (layers.some((layer) => [layer.prefill, layer.decode].some((policy) => keysOf(policy) === 5))) {
      const fields = { resource: 'memory', needed: 2, available: 1, unit: 'bytes' } as const;
      return Promise.reject(new CapacityError(fields));
    }
    const timeOf = (phase: 'prefill' | 'decode'): number =>
      layers.reduce((sum, layer) => sum + unitsOf(layer[phase]), 0);
    const model = {
      name: 'fake',
      backend: 'none',
      config: { numLayers, headDim: 8, vocabSize: numLayers + 1, slidingWindow: 0 },
      async logprobs(tokens: ArrayLike<number>, options: LogitsOptions = {}) {
        const { positions = [], onRow, decodeFrom = tokens.length, signal } = options;
        for (const position of positions) {
          signal?.throwIfAborted();
          const phase = position < decodeFrom ? 'prefill' : 'decode';
          const policies = layers.map((layer) => layer[phase]);
          const isMixed = (tokens[0] as number) >= mixedFrom && new Set(policies.map(keysOf)).size > 1;
          await onRow?.(position, rowOf(policies, (isMixed ? mixed : 0) + (phase === 'decode' ? rounding : 0)));
        }
        return [];
      },
      generate(_tokens: unknown, { maxTokens = 1 }: GenerateOptions) {
        const timings = { promptMs: timeOf('prefill'), generateMs: timeOf('decode') * (maxTokens - 1) };
        return { result: () => Promise.resolve({ timings }) };
      },
      dispose: () => Promise.resolve(),
    };
    return Promise.resolve(model as unknown as Model);
  };
  return { open, opened };
}

const window = Int32Array.from({ length: denseKeys }, (_, i) => i % (numLayers + 1));
const candidates = {
  prefill: ['streaming:window=5,sinks=0', ...[4, 8, 16, 32].map((keys) => `streaming:window=${keys},sinks=0`)],
  decode: [4, 8, 16, 32].map((keys) => `streaming:window=${keys},sinks=0`),
};
const base: Omit<TuneOptions, 'open' | 'budget'> = {
  modelHash: 'xxh:1',
  search: { name: 'a', windows: [window] },
  heldOut: { name: 'b', windows: [window] },
  machine: 'formulas',
  ...{ seed: 1, numRounds: 1, numRows: 4, candidates, uniform: candidates },
};
const tune = (options: Partial<TuneOptions> & Pick<TuneOptions, 'budget'>): Promise<TuneReport> =>
  tuneAttention({ ...base, open: fake().open, ...options });

describe('allocation', () => {
  it('has the least cost of all choices within the bound', () => {
    const rng = createRng(3);
    for (let round = 0; round < 20; round++) {
      const layers = Array.from({ length: 4 }, () => [
        { cost: 1, divergence: 0 },
        ...Array.from({ length: 3 }, (): Choice => ({ cost: rng.nextFloat(), divergence: rng.nextInt(40) / 100 })),
      ]);
      const bound = 0.5;
      const sums = (indices: readonly number[]): [cost: number, divergence: number] => {
        const chosen = layers.map((choices, layer) => choices[indices[layer] as number] as Choice);
        return [
          chosen.reduce((sum, { cost }) => sum + cost, 0),
          chosen.reduce((sum, { divergence }) => sum + divergence, 0),
        ];
      };
      let best = Infinity;
      for (let code = 0; code < 4 ** 4; code++) {
        const [cost, divergence] = sums([0, 1, 2, 3].map((layer) => Math.floor(code / 4 ** layer) % 4));
        // divergences are rounded up to a thousandth of the bound, layer by layer
        if (divergence <= bound * (1 - 4 / 1000)) best = Math.min(best, cost);
      }
      const [cost, divergence] = sums(allocate(layers, bound));
      expect(divergence).toBeLessThanOrEqual(bound + 1e-12);
      expect(cost).toBeLessThanOrEqual(best + 1e-12);
    }
    expect(
      allocate(
        [
          [
            { cost: 1, divergence: 0 },
            { cost: 0, divergence: 1e-9 },
          ],
        ],
        0,
      ),
    ).toEqual([0]);
  });
});

it('keeps the divergence with few keys where a layer is not sensitive, and beats every uniform policy', async () => {
  const certified = 'page-topk:budget=all,epsilon=0.05,page=16,window=16';
  const uniform = { ...candidates, decode: [...candidates.decode, certified] };
  const report = await tune({ budget: { kld: 0.005 }, uniform });
  const keys = report.layers.map(({ decode }) => keysOf(parsePolicy(decode)));
  expect(keys[0]).toBeGreaterThan(keys[3] as number);
  expect(keys[3]).toBeGreaterThan(keys[1] as number);
  expect(keys[1]).toBe(keys[2]);
  for (const phase of ['prefill', 'decode'] as const) {
    const { kld, ms, denseMs } = report.policy.measured[phase];
    expect(kld).toBeGreaterThan(0.001);
    expect(kld).toBeLessThanOrEqual(0.005);
    expect(denseMs).toBe(numLayers * denseKeys);
    expect(ms).toBe(report.layers.reduce((sum, layer) => sum + keysOf(parsePolicy(layer[phase])), 0));
  }
  // nothing has fewer keys than 4 in each layer
  const isBeaten = ({ isFaster, hasFewerPairs }: UniformComparison): boolean => isFaster && hasFewerPairs !== false;
  const unbeaten = report.comparisons.filter((comparison) => !isBeaten(comparison));
  expect(unbeaten.map(({ uniform: { policy } }) => policy)).toEqual(Array(2).fill('streaming:window=4,sinks=0'));
  for (const { uniform: same, tuned } of unbeaten) expect(tuned).toEqual(same);
  // how many pages have to be read depends on queries and keys
  const compared = report.comparisons.find(({ uniform: { policy } }) => policy.includes(certified.slice(0, 9)));
  expect([compared?.uniform.density, compared?.hasFewerPairs]).toEqual([undefined, undefined]);
  expect(compared?.isFaster).toBe(true);
  for (const [layer, { decode, divergence }] of report.layers.entries()) {
    const candidate = report.candidates.find(({ phase, policy }) => phase === 'decode' && policy === decode);
    expect(divergence.decode).toBe(candidate?.divergences[layer]);
  }
  const refused = report.candidates.find(({ policy }) => policy.includes('window=5'));
  expect([refused?.refusal, refused?.divergences[0]]).toEqual([expect.stringContaining('memory'), undefined]);
  const text = formatTuning(report);
  expect(text).toContain('budget: mean KLD of at most 0.005');
  expect(text).toContain('streaming:window=8');
  expect(text).toMatch(/streaming:window=4,sinks=0 .* THE SAME\n/);
  expect(text).toContain('faster than 3 of 4, fewer pairs than 3 of 4\n');
  expect(text).toContain('faster than 4 of 5, fewer pairs than 3 of 4\n');
  expect(readTunedPolicy(formatTunedPolicy(report.policy), { source: 'f', modelHash: 'xxh:1' })).toEqual(report.policy);
});

it('finds policies that are faster with fewer pairs where one that takes few pairs is slow', async () => {
  const decode = [...[6, 8, 32].map((keys) => `streaming:window=${keys},sinks=0`), 'sparq:rank=1,topk=12'];
  const uniform = { prefill: [], decode: decode.slice(3) };
  const report = await tune({ candidates: { decode }, uniform, costs: 'both', budget: { kld: 0.005 } });
  expect(report.comparisons).toMatchObject([{ isFaster: true, hasFewerPairs: true }]);
});

it.each(['time', 'pairs', 'both'] as const)(
  '%s: is no worse than a uniform policy where layers do not add up',
  async (costs) => {
    const { open } = fake({ mixed: 3 });
    const report = await tune({ open, costs, budget: { kld: 0.1 } });
    expect(report.attention).toBe('streaming:window=16,sinks=0');
    for (const { tuned, uniform } of report.comparisons) expect(tuned).toEqual(uniform);
  },
);

it('is no worse than a uniform policy where layers do not add up on held-out text', async () => {
  const { open } = fake({ mixed: 3, mixedFrom: 1 });
  const heldOut = { name: 'b', windows: [window.map((token) => (token + 1) % (numLayers + 1))] };
  const report = await tune({ open, heldOut, budget: { kld: 0.1 } });
  expect(report.attention).toBe('streaming:window=16,sinks=0');
});

it('is dense where nothing keeps the budget, although decoded tokens are rounded', async () => {
  const report = await tune({ open: fake({ rounding: 1e-3 }).open, budget: { kld: 1e-9 } });
  expect(report.attention).toBe('dense');
  expect(report.policy.measured.decode.kld).toBeGreaterThan(1e-9);
  expect(report.comparisons.length).toBe(candidates.decode.length * 2);
});

it('says why no layer can have a policy, also where pairs are the costs', async () => {
  const report = await tune({ budget: { kld: 0.005 }, costs: 'pairs' });
  const refused = report.candidates.filter(({ refusal }) => refusal !== undefined);
  expect(refused.map(({ policy }) => policy)).toEqual([expect.stringContaining('window=5')]);
  expect(refused[0]?.refusal).toContain('memory');
});

it('reaches a speed-up with the least divergence, and names the largest one where it cannot', async () => {
  const report = await tune({ budget: { speedup: 4 } });
  expect(report.speedup).toBeGreaterThanOrEqual(4);
  expect(report.speedup).toBeLessThan(6);
  await expect(tune({ budget: { speedup: 17 } })).rejects.toThrow('expected at most 16.00');
});

it('continues after an interruption with what was measured, and is deterministic', async () => {
  let saved: string | undefined;
  const checkpoint = { load: () => Promise.resolve(saved), save: async (text: string) => void (saved = text) };
  const stop = new AbortController();
  const first = fake();
  let steps = 0;
  const onProgress = (): void => {
    if (++steps === 20) stop.abort(new Error('stopped'));
  };
  const options = { ...base, budget: { kld: 0.005 }, checkpoint };
  await expect(tuneAttention({ ...options, open: first.open, onProgress, signal: stop.signal })).rejects.toThrow(
    'stopped',
  );
  const notices: string[] = [];
  const onNotice = (text: string): void => void notices.push(text);
  const second = fake();
  const resumed = await tuneAttention({ ...options, open: second.open, onNotice });
  const whole = fake();
  expect(resumed).toEqual(await tuneAttention({ ...options, open: whole.open, checkpoint: undefined }));
  expect(notices).toEqual([expect.stringMatching(/^continuing after \d+ measurements$/)]);
  // rows of dense attention and the description are not stored
  expect(second.opened.length).toBeLessThan(whole.opened.length - 8);
  const third = fake();
  await tuneAttention({ ...options, open: third.open, budget: { kld: 0.006 } });
  expect(third.opened.length).toBeLessThan(whole.opened.length / 2);
  await tuneAttention({ ...options, open: fake().open, seed: 2, onNotice });
  expect(notices[1]).toContain('starting over');
  saved = '{';
  await expect(tuneAttention({ ...options, open: fake().open })).rejects.toThrow('damaged');
});

it('rejects options out of range', async () => {
  const short = { name: 'a', windows: [window.subarray(0, 8)] };
  for (const wrong of [
    { budget: { kld: 0 } },
    { budget: { recall: 0.9 } }, // no tasks
    { budget: { kld: 0.01 }, search: short },
    { budget: { kld: 0.01 }, numDecoded: 40 },
    { budget: { kld: 0.01 }, candidates: { decode: ['h2o'] } },
  ]) {
    await expect(tune(wrong)).rejects.toThrow(ArgumentError);
  }
});
