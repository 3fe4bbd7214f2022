/** Tiny models of random weights against log-probabilities of an independent float64 pass, and greedy ids of llama.cpp. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadModel, type Model } from '../src/index.node.js';
import { archPath, decodeFloats, goldenBackends, maxDifference, readJson } from './golden-files.js';

const architectures = ['llama', 'llama-linear', 'llama-yarn', 'llama3-ropefreqs', 'mistral'];

interface Golden {
  readonly prompts: readonly {
    readonly tokens: readonly number[];
    readonly positions: readonly number[];
    readonly greedy: readonly number[];
  }[];
  readonly tokenize: readonly { readonly text: string; readonly tokens: readonly number[] }[];
}
interface Exact {
  readonly logprobs: readonly (readonly string[])[];
}

/** The limit that the goldens' documentation derives for an f32 engine. */
const limit = 5e-4;

for (const [backendName, createBackend] of Object.entries(goldenBackends)) {
  for (const [name, file] of architectures.flatMap((name) => [[name, 'model.gguf'] as const, [name, 'hf/'] as const])) {
    const path = archPath(name, file.replace('/', ''));
    const goldenPath = archPath(name, 'golden.json');
    const exactPath = archPath(name, 'exact.json');
    const isMissing = path === undefined || goldenPath === undefined || exactPath === undefined;
    describe.skipIf(isMissing)(
      `${name}/${file} on the ${backendName}${isMissing ? ' (needs ../shared/data/goldens)' : ''}`,
      () => {
        const golden = isMissing ? undefined : readJson<Golden>(goldenPath);
        const exact = isMissing ? undefined : readJson<Exact>(exactPath);
        let model: Model;
        beforeAll(async () => {
          model = await loadModel(path as string, { contextSize: 256, ...createBackend() });
        });
        afterAll(() => model?.dispose());

        for (const batchSize of [1, 7, 64]) {
          test(`log-probabilities within ${limit}, prompt in steps of ${batchSize}`, async () => {
            for (const [index, { tokens, positions }] of (golden as Golden).prompts.entries()) {
              const actual = await model.logprobs(tokens, { positions, batchSize });
              for (const [at, logprobs] of actual.entries()) {
                const expected = decodeFloats((exact as Exact).logprobs[index]?.[at] as string);
                expect(maxDifference(logprobs, expected)).toBeLessThan(limit);
              }
            }
          });
        }

        test('greedy ids', async () => {
          for (const { tokens, greedy } of (golden as Golden).prompts) {
            const options = { temperature: 0, maxTokens: greedy.length, ignoreEos: true };
            const { tokens: actual } = await model.generate(tokens, options).result();
            expect(actual).toEqual(greedy);
          }
        });

        // the hf folders of the goldens hold no tokenizer
        test.skipIf(file === 'hf/')('tokenized texts', () => {
          for (const { text, tokens } of (golden as Golden).tokenize) {
            expect([...model.tokenizer.encode(text, { addSpecialTokens: false })]).toEqual(tokens);
          }
        });
      },
    );
  }
}
