/** The demo model against a NumPy forward pass of the same weights. */
import { demoModelUrl } from '@winnow/demo-model';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { loadModel, type GeneratedToken, type Model } from '../../src/index.js';
import { readJson } from '../support/golden-files.js';
import { fileURLToPath } from 'node:url';

interface Golden {
  readonly prompts: readonly {
    readonly text: string;
    readonly ids: readonly number[];
    readonly top5: readonly { readonly id: number; readonly logit: number }[];
    readonly greedy: readonly number[];
    readonly greedy_text: string;
  }[];
}

const golden = readJson<Golden>(
  fileURLToPath(new URL('../../../demo-model/src/__fixtures__/goldens.json', import.meta.url)),
);
let model: Model;
beforeAll(async () => {
  model = await loadModel(demoModelUrl);
});
afterAll(() => model.dispose());

test('prompts are tokenized as in the goldens', () => {
  for (const { text, ids } of golden.prompts) expect([...model.encodePrompt(text)]).toEqual(ids);
});

test('greedy continuations of 64 tokens, and the five largest logits up to the log-sum-exp', async () => {
  for (const { ids, greedy, greedy_text: text, top5 } of golden.prompts) {
    const generation = model.generate(ids, { temperature: 0, maxTokens: 64, ignoreEos: true, numTopLogprobs: 5 });
    let first: GeneratedToken | undefined;
    for await (const token of generation) first ??= token;
    const result = await generation.result();
    expect(result.tokens).toEqual(greedy);
    expect(model.tokenizer.decode(result.tokens)).toBe(text);
    const best = first?.topLogprobs ?? [];
    expect(best.map(({ tokenId }) => tokenId)).toEqual(top5.map(({ id }) => id));
    best.forEach(({ logprob }, rank) => {
      const expected = (top5[rank]?.logit as number) - (top5[0]?.logit as number);
      const actual = logprob - (best[0]?.logprob as number);
      expect(Math.abs(actual - expected)).toBeLessThan(2e-4); // the goldens are rounded to 4 digits
    });
  }
});

test('chat: the trained question form is answered and ends with the end token', async () => {
  const question = 'The code of Alice is 31407. The code of Peter is 90210. What is the code of Alice?';
  const result = await model
    .generate([{ role: 'user', content: question }], { temperature: 0, maxTokens: 40 })
    .result();
  expect(result.text).toContain('31407');
  expect(result.finishReason).toBe('eos');
});
