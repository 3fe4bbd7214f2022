/** Tiny models with random weights against log-probabilities of an independent float64 pass and greedy ids of llama.cpp. */
import { type Backend } from '@winnow/ops';
import { testCoverage } from '@winnow/test-utils';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadModel, type Model } from '../../src/index.js';
import { useBackends } from '../support/backends.js';
import { archPath, decodeFloats, goldenNames, maxDifference, readJson } from '../support/golden-files.js';

/** Causal models, by architecture. */
const names = Object.values(goldenNames).flat();

interface Prompt {
  readonly tokens: readonly number[];
  readonly positions: readonly number[];
  readonly greedy: readonly number[];
}
interface Golden {
  readonly prompts: readonly Prompt[];
  /** The same in a larger context. */
  readonly longPrompts?: readonly Prompt[];
  readonly longContextSize?: number;
  readonly tokenize: readonly { readonly text: string; readonly tokens: readonly number[] }[];
}
interface Exact {
  readonly logprobs: readonly (readonly string[])[];
  readonly longLogprobs?: readonly (readonly string[])[];
}

/** The limit that the goldens' documentation derives for an f32 engine. */
const limit = 5e-4;
/** Holds the longest prompt and the tokens generated after it. */
const contextSize = 256;

/**
 * Batch sizes for the prompt by file and backend; they cover each golden on each backend and in each file format. The page
 * `docs/models.md` describes them.
 */
const quickSteps: Readonly<Record<string, Readonly<Record<string, readonly number[]>>>> = {
  'model.gguf': { WebAssembly: [1, 7, contextSize], reference: [7] },
  hf: { WebAssembly: [contextSize] },
};
const stepsOf = (file: string, backendName: string): readonly number[] =>
  testCoverage === 'full' ? [1, 7, contextSize] : (quickSteps[file]?.[backendName] ?? []);

const backends = useBackends();

async function expectLogprobs(
  model: Model,
  prompts: readonly Prompt[],
  exact: Exact['logprobs'],
  batchSize: number,
): Promise<void> {
  let worst = 0;
  for (const [index, { tokens, positions }] of prompts.entries()) {
    const actual = await model.logprobs(tokens, { positions, batchSize });
    expect(actual.length).toBe(exact[index]?.length);
    for (const [at, logprobs] of actual.entries()) {
      const difference = maxDifference(logprobs, decodeFloats(exact[index]?.[at] as string));
      if (!(difference <= worst)) worst = difference;
    }
  }
  expect(worst).toBeLessThan(limit);
}

/** The number of greedy ids that `npm test` checks on the slow reference backend. */
const numFirst = testCoverage === 'full' ? Infinity : 2;

async function expectGreedy(model: Model, prompts: readonly Prompt[], numTokens = Infinity): Promise<void> {
  for (const { tokens, greedy } of prompts) {
    const expected = greedy.slice(0, numTokens);
    const options = { temperature: 0, maxTokens: expected.length, ignoreEos: true };
    const { tokens: actual } = await model.generate(tokens, options).result();
    expect(actual).toEqual(expected);
  }
}

for (const name of names) {
  for (const file of ['model.gguf', 'hf']) {
    const [path, goldenPath, exactPath] = [file, 'golden.json', 'exact.json'].map((part) => archPath(name, part));
    const isMissing = path === undefined || goldenPath === undefined || exactPath === undefined;
    describe.skipIf(isMissing)(`${name}/${file}${isMissing ? ' (needs ../shared/data/goldens)' : ''}`, () => {
      const golden = isMissing ? undefined : readJson<Golden>(goldenPath);
      const exact = isMissing ? undefined : readJson<Exact>(exactPath);
      const { prompts, longPrompts, longContextSize } = golden ?? { prompts: [] };

      for (const backendName of ['WebAssembly', 'reference']) {
        // the last prompt, of 150 tokens, is long for the reference, and token by token, as greedy ids are computed after it
        const numIn = (batchSize: number): number =>
          testCoverage === 'full' || (backendName !== 'reference' && batchSize > 1) ? prompts.length : 3;
        if (stepsOf(file, backendName).length === 0) continue;
        describe(`${backendName} backend`, () => {
          let model: Model;
          const load = (size: number): Promise<Model> =>
            loadModel(path as string, {
              context: size,
              batchSize: size,
              maxSessions: 1,
              backend: backends[backendName] as Backend,
            });
          beforeAll(async () => {
            model = await load(contextSize);
          });
          afterAll(() => model?.dispose());

          for (const batchSize of stepsOf(file, backendName)) {
            test(`log-probabilities within ${limit}, batch size ${batchSize}`, () =>
              expectLogprobs(model, prompts.slice(0, numIn(batchSize)), (exact as Exact).logprobs, batchSize));
          }

          const numTokens = backendName === 'reference' ? numFirst : Infinity;
          test('greedy ids', () => expectGreedy(model, prompts.slice(0, numIn(Infinity)), numTokens));

          if (longPrompts !== undefined) {
            test('in the long context', async () => {
              const long = await load(longContextSize as number);
              await expectLogprobs(long, longPrompts, (exact as Exact).longLogprobs as string[][], 7);
              await expectGreedy(long, longPrompts);
              await long.dispose();
            });
          }

          // the Hugging Face folders of the goldens have no tokenizer
          if (file === 'model.gguf' && backendName === 'WebAssembly') {
            test('tokenized texts', () => {
              const { tokenize } = golden as Golden;
              expect(tokenize.length).toBeGreaterThan(0);
              for (const { text, tokens } of tokenize) {
                expect([...model.tokenizer.encode(text, { addSpecialTokens: false })]).toEqual(tokens);
              }
            });
          }
        });
      }
    });
  }
}
