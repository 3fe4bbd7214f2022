/** Every attention policy and every cache dtype on every generative architecture, with the tiny golden models. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { cacheDTypes, type Backend } from '@winnow/ops';
import { ArgumentError, type DType } from '@winnow/tensor';
import { sampled, testCoverage } from '@winnow/test-utils';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadModel, type LoadOptions } from '../../../src/index.js';
import { archPath, decodeFloats, goldenNames, maxDifference, readJson } from '../../support/golden-files.js';
import { inMemory } from '../../support/in-memory.js';

interface Golden {
  readonly prompts: readonly { readonly tokens: readonly number[]; readonly positions: readonly number[] }[];
}
interface Exact {
  readonly logprobs: readonly (readonly string[])[];
}

const contextSize = 128;
const numGenerated = testCoverage === 'full' ? 6 : 3;
/** Index of the prompt of 61 tokens. */
const promptIndex = 2;

/** Policies that skip most of the prompt, for both phases or the only phase that they support. */
const sparse = [
  'dense',
  'oracle-topk:k=8',
  'subquadratic:window=16,block=8',
  'streaming:window=16,sinks=2',
  'prefill=h2o:chunk=16,local=4,heavy=4',
  'prefill=streaming:window=16,sinks=2,delta=8',
  'decode=sparq:rank=4,topk=8',
  'decode=page-topk:budget=1,page=16,window=8,sinks=1',
  'decode=verified-topk:epsilon=0.9,budget=0,page=8,window=8,sinks=1,sample=4',
];

/** The same policies with budgets that cover the whole prompt: exact. */
const keepingAll = [
  'oracle-topk:k=128',
  'subquadratic:window=128,landmarks=off',
  'streaming:window=128,sinks=0',
  'prefill=h2o:chunk=128',
  'prefill=streaming:window=1,sinks=0,delta=1',
  'decode=sparq:rank=1024,topk=128',
  'decode=page-topk:budget=all,page=16',
  'decode=verified-topk:sample=128',
];

/** Policies that refuse models with learned sinks. */
const withoutSinks = /oracle|subquadratic|h2o|sparq|verified|delta/;

/** Models with learned sinks, and those whose layers share keys or have different heads, which all policies run on. */
const runsAll = /^(gpt-oss|gemma3n|gemma4$)/;

/** Models without attention, which refuse every policy. */
const withoutAttention = /mamba$|^mamba2/;

function accepts(name: string, attention: string): boolean {
  if (name.startsWith('gpt-oss')) return !withoutSinks.test(attention);
  return attention === 'dense' || !withoutAttention.test(name);
}

/** The phases in which a policy is not dense, or both. */
const phasesOf = (attention: LoadOptions['attention'] = 'dense'): readonly ('prefill' | 'decode')[] =>
  (['prefill', 'decode'] as const).filter((phase) => {
    const [, only] = /^(prefill|decode)=/.exec(String(attention)) ?? [];
    return only === undefined || only === phase;
  });

/** The limit that the goldens' documentation derives for an f32 engine. */
const limit = 5e-4;
/** KL divergence up to which 8-bit caches count as lossless; heads of 16 or 24 values are stored as blocks of 32. */
const nearlyLossless = 0.0014;

let backend: Backend;
beforeAll(async () => {
  backend = await createWasmBackend({ numThreads: 1 });
});
afterAll(() => backend.dispose());

const sizes = { context: contextSize, maxSessions: 1 };

/** Four chunks of 20, the last of them incomplete. */
const tokensOfChunks = Array.from({ length: 61 }, (_, index) => 5 + ((index * 7) % 200));

/** gpt-oss; its files are committed. */
const withSinks = archPath('gpt-oss', 'model.gguf') as string;

test.each(sparse.filter((attention) => withoutSinks.test(attention)))('learned sinks refuse %s', async (attention) => {
  const loaded = loadModel(withSinks, { backend, ...sizes, attention });
  await expect(loaded).rejects.toThrow(ArgumentError);
  await expect(loaded).rejects.toThrow(/learned sinks: expected dense \| streaming \| page-topk, without delta, got /);
});

test('a policy leaves layers with chunked attention dense, with a notice', async () => {
  const notices: string[] = [];
  const onEvent: LoadOptions['onEvent'] = (event) => {
    if (event.kind === 'notice') notices.push(event.text);
  };
  const logprobs = async (attention: string): Promise<Float32Array[]> => {
    const path = archPath('llama4', 'model.gguf') as string;
    await using model = await loadModel(path, { backend, ...sizes, attention, onEvent });
    return await model.logprobs(tokensOfChunks, { positions: [30, 60] });
  };
  const everywhere = await logprobs('streaming:window=5,sinks=1');
  expect(notices.join()).toContain('layers with chunked attention are dense under streaming:window=5,sinks=1');
  expect(everywhere).toEqual(await logprobs('prefill=dense;layers=3:streaming:window=5,sinks=1'));
  expect(everywhere).not.toEqual(await logprobs('dense'));
});

for (const [index, name] of Object.values(goldenNames).flat().entries()) {
  const [path, goldenPath, exactPath] = ['model.gguf', 'golden.json', 'exact.json'].map((file) => archPath(name, file));
  const isMissing = path === undefined || goldenPath === undefined || exactPath === undefined;
  describe.skipIf(isMissing)(`${name}${isMissing ? ' (needs ../shared/data/goldens)' : ''}`, () => {
    const { tokens = [], positions = [] } = isMissing
      ? {}
      : (readJson<Golden>(goldenPath).prompts[promptIndex] as Golden['prompts'][number]);
    const rows = isMissing ? [] : (readJson<Exact>(exactPath).logprobs[promptIndex] as readonly string[]);
    const file = isMissing ? '' : inMemory(path);

    /** Generates, then returns the log-probabilities after the prompt as computed in each phase. */
    async function run(options: LoadOptions): Promise<Float32Array[]> {
      await using model = await loadModel(file, { backend, ...sizes, ...options });
      const sampling = { temperature: 0, maxTokens: numGenerated, ignoreEos: true };
      const { tokens: generated } = await model.generate(tokens, sampling).result();
      expect(generated).toHaveLength(numGenerated);
      const last = tokens.length - 1;
      const results: Float32Array[] = [];
      for (const phase of phasesOf(options.attention)) {
        const [logprobs] = await model.logprobs(tokens, { positions: [last], phase });
        results.push(logprobs as Float32Array);
      }
      return results;
    }

    const expectDistributions = (all: readonly Float32Array[]): void => {
      for (const logprobs of all) {
        expect(logprobs.reduce((sum, value) => sum + Math.exp(value), 0)).toBeCloseTo(1, 4);
        expect(logprobs.every((value) => value <= 0)).toBe(true);
      }
    };
    const divergence = (logprobs: Float32Array): number =>
      decodeFloats(rows[positions.indexOf(tokens.length - 1)] as string).reduce(
        (sum, exact, id) => sum + Math.exp(exact) * (exact - (logprobs[id] as number)),
        0,
      );
    const expectGolden = (all: readonly Float32Array[]): void => {
      const exact = decodeFloats(rows[positions.indexOf(tokens.length - 1)] as string);
      for (const logprobs of all) expect(maxDifference(logprobs, exact)).toBeLessThan(limit);
    };

    // architectures share their attention code: each policy and dtype runs on a sixth of them
    const isRun = (attention: string): boolean => accepts(name, attention);
    const [every, chosen] = runsAll.test(name) ? [1, 0] : [6, index % 6];
    test.each(sampled(sparse, every, chosen).filter(isRun))('%s', async (attention) =>
      expectDistributions(await run({ attention })),
    );
    test.each(sampled(keepingAll, every, chosen).filter(isRun))('%s is exact', async (attention) =>
      expectGolden(await run({ attention })),
    );
    test.each(name === 'llama' ? cacheDTypes : sampled(cacheDTypes, 6, index % 6))(
      'keys and values in %s',
      async (dtype: DType) => {
        const all = await run({ kvCache: { dtype } });
        expectDistributions(all);
        if (dtype === 'f32') expectGolden(all);
        // rounding may route tokens to other random experts; llama has no experts
        if (name === 'llama' && dtype === 'q8_0') {
          for (const logprobs of all) expect(divergence(logprobs)).toBeLessThan(nearlyLossless);
        }
      },
    );
  });
}
