/** What models do beyond attention policies, at each level of native kernels, against WebAssembly. */
import { memorySink, memorySource } from '@winnow/bytes';
import { demoModelUrl } from '@winnow/demo-model';
import type { Sidecar } from '@winnow/sparse-inference';
import { sampled, testCoverage } from '@winnow/test-utils';
import { afterAll, describe, expect, test } from 'vitest';
import {
  inspectModel,
  loadEmbeddingModel,
  loadModel,
  type FeedForwardAccess,
  type LoadOptions,
  type Model,
  type Speculative,
} from '../../src/index.js';
import { archPath } from '../support/golden-files.js';
import { coldFilesInMemory as folder, inMemory } from '../support/in-memory.js';
import { bound, disposeBackends, on, rowsOf, text, withBackend, worstOf, type Case } from '../support/native-models.js';
import { usableLevels, type Level } from '../support/native.js';
import { makeSidecar } from '../support/sidecars.js';

const greedy = { temperature: 0, ignoreEos: true } as const;
/** Exact activations, so that the margins of greedy tokens are far above the difference of the two sides. */
const exact: Case = { activations: 'f32' };
/** On one thread: threads share the work of ops in the tests of policies, tiers and sparse FFNs. */
const alone: Case = { ...exact, numThreads: 1 };
const levels = await usableLevels();
afterAll(disposeBackends);
const numGreedy = testCoverage === 'full' ? 200 : 48;

/** Kernels of each level are compared with WebAssembly in `packages/backend-wasm`: here, levels take turns with features. */
const turnOf = <Item>(items: readonly Item[], level: Level): readonly Item[] =>
  sampled(items, levels.length, levels.indexOf(level));

const sidecars = new Map<string, Promise<Sidecar>>();

/** Traced once for all levels. */
function sidecarOf(kind: 'gate-threshold' | 'low-rank'): Promise<Sidecar> {
  const known = sidecars.get(kind) ?? traced(kind);
  sidecars.set(kind, known);
  return known;
}

async function traced(kind: 'gate-threshold' | 'low-rank'): Promise<Sidecar> {
  await using model = await loadModel(inMemory(demoModelUrl), {
    context: 64,
    trace: { feedForward: true },
    native: false,
  });
  return await makeSidecar(model.feedForward as FeedForwardAccess, {
    kind,
    threshold: kind === 'low-rank' ? -0.05 : 1e-30,
  });
}

/** Greedy tokens: half of them, then the rest from a saved session, which may be restored on another side. */
async function firstHalf(model: Model): Promise<{ tokens: readonly number[]; saved: Uint8Array }> {
  using session = model.createSession();
  const { tokens } = await session.generate(text, { ...greedy, maxTokens: numGreedy / 2 }).result();
  const sink = memorySink();
  await session.save(sink);
  return { tokens, saved: sink.toBytes().slice() };
}

const secondHalf =
  (saved: Uint8Array) =>
  async (model: Model): Promise<readonly number[]> => {
    using session = await model.restoreSession(memorySource(saved));
    return (await session.resume({ maxTokens: numGreedy / 2 }).result()).tokens;
  };

const drafts: readonly Speculative[] = [
  'lookup',
  'self=streaming:window=64,sinks=4',
  'self=sparq:rank=16,topk=64,mean=false',
];

/** Of the demo model: 64 slots of 6 layers with keys and values of 2 heads of 32, and their positions. */
const blockBytes = 64 * 4 * (6 * 2 * 2 * 32 + 1);

const tiers: Readonly<Record<string, LoadOptions>> = {
  'dense, in memory': { kvCache: { offload: { memory: 2 ** 22 } } },
  'page-topk, in files': { attention: 'decode=page-topk:budget=2,window=20', kvCache: { offload: { folder } } },
  'streaming, in files': { attention: 'streaming:window=64,sinks=4', kvCache: { offload: { folder } } },
};

/** The answer to a prompt of which a part is outside the pool. */
async function tieredAnswer(model: Model): Promise<readonly number[]> {
  using session = model.createSession();
  const { tokens } = await session.generate(text.repeat(24), { ...greedy, maxTokens: 16 }).result();
  expect(model.metrics().tiers?.numStoredTokens).toBeGreaterThan(0);
  return tokens;
}

/** Log-probabilities of a short text, token by token. */
async function shortRows(model: Model): Promise<Float32Array[]> {
  const tokens = model.encodePrompt(text);
  const positions = [tokens.length - 2, tokens.length - 1];
  return await model.logprobs(tokens, { positions, phase: 'decode', decodeFrom: 4 });
}

/** The same with a budget: some neurons are read from the file. */
async function coldRows(model: Model): Promise<Float32Array[]> {
  const rows = await shortRows(model);
  expect(model.metrics().feedForward?.cache?.coldReads).toBeGreaterThan(0);
  return rows;
}

describe.each(levels)('%s', (level) => {
  const greedyName = `${numGreedy} greedy tokens, in sessions that are saved on one side and restored on the other`;
  test.each(turnOf([greedyName], level))('%s', async () => {
    const wasm = await on(false, exact, firstHalf);
    const native = await on(level, alone, firstHalf);
    expect(native.tokens).toEqual(wasm.tokens);
    const rest = await on(false, exact, secondHalf(wasm.saved));
    expect(await on(level, alone, secondHalf(wasm.saved))).toEqual(rest);
    expect(await on(level, alone, secondHalf(native.saved))).toEqual(rest);
    expect(await on(false, exact, secondHalf(native.saved))).toEqual(rest);
  });

  test.each(turnOf(drafts, level))('drafts, %s', async (speculative) => {
    const plain = (model: Model): Promise<readonly number[]> => answerOf(model, 'off');
    const drafted = (model: Model): Promise<readonly number[]> => answerOf(model, speculative);
    const expected = await on(false, { ...exact, speculative }, plain);
    expect(await on(level, { ...alone, speculative }, drafted)).toEqual(expected);
    expect(await on(level, { ...alone, speculative }, plain)).toEqual(expected);
  });

  test.each(turnOf(Object.keys(tiers), level))('tiers, %s', async (name) => {
    const options = tiers[name] as LoadOptions;
    const kvCache = { ...options.kvCache, budget: 9.5 * blockBytes, prefixSharing: false };
    const given: Case = { ...exact, ...options, kvCache, context: 1024, batchSize: 32, maxSessions: 1 };
    expect(await on(level, given, tieredAnswer)).toEqual(await on(false, given, tieredAnswer));
  });

  test.each(turnOf(['low-rank', 'gate-threshold'] as const, level))('sparse FFNs, %s', async (kind) => {
    const given: Case = { ...exact, sparsity: { calibration: await sidecarOf(kind) }, batchSize: 1 };
    const expected = await on(false, given, rowsOf);
    expect(worstOf(await on(level, given, rowsOf), expected)).toBeLessThan(bound);
  });

  const encoders = ['bert-mean', 'nomic-bert', 'modern-bert'].map(
    (name) => [name, (archPath(name, 'model.gguf') ?? archPath(name, 'hf')) as string] as const,
  );
  test.each(turnOf(encoders, level))('embeddings, %s', async (_name, path) => {
    const texts = [5, 40, 100].map((length) => Array.from({ length }, (_, i) => 5 + ((i * 7 + length) % 190)));
    const vectors = (native: Level | false): Promise<Float32Array[]> =>
      withBackend(native, alone, async (backend) => {
        await using model = await loadEmbeddingModel(path, { backend });
        return [...(await model.embed(texts))];
      });
    // of unit length, so the bound of log-probabilities around 10 is a tenth
    expect(worstOf(await vectors(level), await vectors(false))).toBeLessThan(bound / 10);
  });
});

const [best] = levels;

test.skipIf(best === undefined)('sparse FFNs with neurons that stay in the file', async () => {
  const sparsity = { calibration: await sidecarOf('low-rank') };
  const given: Case = { ...exact, sparsity, batchSize: 1, context: 64, maxSessions: 1 };
  const { plan } = await inspectModel(inMemory(demoModelUrl), { ...given, native: false });
  const memory = { budget: Math.round(plan.totalBytes - 0.25 * plan.weightsBytes), folder };
  const ops = ['sparse-matmul', 'sparse-combine'];
  const expected = await on(false, given, shortRows);
  expect(worstOf(await on(best as Level, { ...given, memory, ops }, coldRows), expected)).toBeLessThan(bound);
});

async function answerOf(model: Model, speculative: Speculative): Promise<readonly number[]> {
  const result = await model.generate(text.slice(3), { ...greedy, maxTokens: 60, speculative }).result();
  if (speculative !== 'off') expect(result.speculation?.numDraftedTokens).toBeGreaterThan(0);
  return result.tokens;
}
