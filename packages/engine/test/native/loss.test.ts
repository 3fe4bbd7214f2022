/** Native kernels that die or fail during a request: WebAssembly repeats it, and the answer is the same. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type * as workerThreads from 'node:worker_threads';
import { demoModelUrl } from '@winnow/demo-model';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { loadEmbeddingModel, loadModel, type EngineEvent, type LoadOptions, type Model } from '../../src/index.js';
import { archPath } from '../support/golden-files.js';
import { hasNative } from '../support/native.js';

/** The workers that backends have started, and what replaces the path of their addon. */
const { started, addon } = vi.hoisted(() => ({
  started: [] as workerThreads.Worker[],
  addon: { replace: (path: string): string => path },
}));
vi.mock('node:worker_threads', async (importOriginal) => {
  const original = await importOriginal<typeof workerThreads>();
  class Worker extends original.Worker {
    constructor(source: string, options: { readonly workerData: { readonly native?: { readonly path: string } } }) {
      const { native } = options.workerData;
      const replaced = native && { native: { ...native, path: addon.replace(native.path) } };
      super(source, { ...options, workerData: { ...options.workerData, ...replaced } });
      started.push(this);
    }
  }
  return { ...original, Worker };
});

const folder = mkdtempSync(join(tmpdir(), 'winnow-loss-'));
afterAll(() => rmSync(folder, { recursive: true }));
afterEach(() => {
  addon.replace = (path) => path;
});

/** What an addon does that fails: a crash reads a task from memory that is reserved only. */
const failures = { throws: `throw new Error('of the addon')`, crashes: `return run(0x7fff0000)` } as const;

/** Has workers load an addon that fails in the given call of a kernel of one thread. */
function failInCall(call: number, failure: keyof typeof failures = 'throws'): void {
  addon.replace = (path) => {
    const failing = join(folder, `${failure}-${call}.cjs`);
    writeFileSync(
      failing,
      `
const { attach } = require(${JSON.stringify(path)});
let numCalls = 0;
exports.attach = (...range) => {
  const { run, connect } = attach(...range);
  const failing = (task) => {
    if (++numCalls === ${call}) ${failures[failure]};
    return run(task);
  };
  return { run: failing, connect };
};
`,
    );
    return failing;
  };
}

const prompt = 'The old man looked at the sea and said that he had never seen such a storm. '.repeat(3);
const greedy = { temperature: 0, ignoreEos: true, maxTokens: 30 } as const;
/** Exact activations: the two sides differ by the rounding of f32 sums alone. */
const common: LoadOptions = { context: 512, activations: 'f32', threads: 2 };

let expected: readonly number[];
beforeAll(async () => {
  await using model = await loadModel(demoModelUrl, { ...common, native: false });
  expected = (await model.generate(prompt, greedy).result()).tokens;
});

interface Loaded {
  readonly model: Model;
  /** Why devices were lost. */
  readonly losses: string[];
}

async function loadNative(options: LoadOptions = {}): Promise<Loaded> {
  const losses: string[] = [];
  const onEvent = (event: EngineEvent): void => void (event.kind === 'device-lost' && losses.push(event.reason));
  const model = await loadModel(demoModelUrl, { ...common, native: true, onEvent, ...options });
  expect(model.backend).toMatch(/^wasm\+/);
  return { model, losses };
}

const isBuilt = await hasNative();

describe.skipIf(!isBuilt)('a generation', () => {
  test.each([1, 29])('whose worker is killed after %d tokens', async (numBefore) => {
    const { model, losses } = await loadNative();
    const generation = model.generate(prompt, greedy);
    let numTokens = 0;
    for await (const _ of generation) {
      if (++numTokens === numBefore) await started.at(-1)?.terminate();
    }
    expect((await generation.result()).tokens).toEqual(expected);
    expect(losses).toEqual(['a worker died']);
    await model.dispose();
  });

  test.each([
    ['throws', 1],
    ['throws', 20],
    ['crashes', 20],
  ] as const)('whose addon %s in call %d of a thread', async (failure, call) => {
    failInCall(call, failure);
    const { model, losses } = await loadNative();
    // the second one finds no native kernels that could fail again
    for (let round = 0; round < 2; round++) {
      expect((await model.generate(prompt, greedy).result()).tokens).toEqual(expected);
    }
    expect(losses).toEqual(['a worker died']);
    await model.dispose();
  });

  test('of several that share their steps', async () => {
    failInCall(30);
    const { model, losses } = await loadNative({ maxSessions: 3, kvCache: { prefixSharing: false } });
    const results = await Promise.all([1, 2, 3].map(() => model.generate(prompt, greedy).result()));
    for (const { tokens } of results) expect(tokens).toEqual(expected);
    expect(losses).toEqual(['a worker died']);
    await model.dispose();
  });
});

test.skipIf(!isBuilt)('texts whose addon fails have the vectors of WebAssembly, bit for bit', async () => {
  const encoder = archPath('bert-mean', 'model.gguf') as string;
  const texts = Array.from({ length: 40 }, (_, text) =>
    Array.from({ length: 120 }, (_, i) => 5 + ((i * (text + 7)) % 190)),
  );
  await using exact = await loadEmbeddingModel(encoder, { threads: 2, native: false });
  const vectors = await exact.embed(texts);
  failInCall(1);
  await using model = await loadEmbeddingModel(encoder, { threads: 2, native: true });
  expect(await model.embed(texts)).toEqual(vectors);
  // without a failure the sums are added in another order
  addon.replace = (path) => path;
  await using native = await loadEmbeddingModel(encoder, { threads: 2, native: true });
  expect(await native.embed(texts)).not.toEqual(vectors);
});
