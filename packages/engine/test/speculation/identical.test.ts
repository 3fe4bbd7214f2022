/** 10,000 greedy tokens of the demo model are the same with and without drafts, in all combinations; `npm test` takes a slice. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { demoModelUrl } from '@winnow/demo-model';
import { sampled, testCoverage } from '@winnow/test-utils';
import { expect, test } from 'vitest';
import { loadModel, type LoadOptions, type Speculative } from '../../src/index.js';
import { hasNative } from '../support/native.js';

/** A text that repeats itself in part, so that some drafts are right. */
const story =
  'The old man looked at the sea and said that he had never seen such a storm. The boy looked at the old man and said that the sea was ';
const perText = testCoverage === 'full' ? 800 : 60;
const numTokens = testCoverage === 'full' ? 10_000 : 60;

const weights: Readonly<Record<string, LoadOptions>> = {
  f16: {},
  q8_0: { quantize: 'q8_0', kvCache: { dtype: 'q8_0' } },
  q4_0: { quantize: 'q4_0', kvCache: { dtype: 'f16' } },
};
const kinds: readonly Speculative[] = [
  'lookup',
  'self=streaming:window=64,sinks=4',
  'self=sparq:rank=16,topk=64,mean=false',
];

const cases = [...new Set([false, await hasNative()])].flatMap((native) =>
  Object.keys(weights).flatMap((name) =>
    [1, 2].flatMap((numThreads) => kinds.map((kind) => ({ native, name, numThreads, kind }))),
  ),
);

test.each(sampled(cases, 7))(
  'native: $native, $name, $numThreads threads, $kind',
  { timeout: 600_000 },
  async ({ native, name, numThreads, kind }) => {
    const createBackend = () => createWasmBackend({ numThreads, native });
    const options = { context: 1024, maxSessions: 1, speculative: kind, createBackend, ...weights[name] };
    const model = await loadModel(demoModelUrl, options);
    try {
      for (let begin = 0, text = 0; begin < numTokens; begin += perText, text++) {
        const prompt = story.slice(3 * text);
        const greedy = { temperature: 0, ignoreEos: true, maxTokens: Math.min(perText, numTokens - begin) };
        const plain = await model.generate(prompt, { ...greedy, speculative: 'off' }).result();
        const drafted = await model.generate(prompt, greedy).result();
        expect(drafted.tokens).toEqual(plain.tokens);
        expect(drafted.speculation).toBeDefined();
      }
    } finally {
      await model.dispose();
    }
  },
);
