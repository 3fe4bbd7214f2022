/** The field `speculative` of requests, and what the server counts of drafts. */
import { fastClock } from '@winnow/test-utils';
import { expect, test } from 'vitest';
import { loadDemoModel, postJson, startServer } from './demo-server.js';

const verse = 'The old man looked at the sea, and the sea looked at the old man. ';

test('a request chooses its drafts, with the text of plain decoding', async () => {
  await using model = await loadDemoModel({ speculative: 'lookup', now: fastClock() });
  const demo = await startServer({ models: [{ id: 'demo', model }] });
  const count = async (name: string): Promise<number> => {
    const metrics = await (await fetch(`${demo.url}/metrics`)).text();
    return Number(new RegExp(`^winnow_${name}_tokens_total\\{model="demo"\\} (\\d+)$`, 'm').exec(metrics)?.[1]);
  };
  const complete = async (fields: object): Promise<string> => {
    const body = { model: 'demo', prompt: verse.repeat(4), temperature: 0, max_tokens: 40, ...fields };
    const answer = await postJson(`${demo.url}/v1/completions`, body);
    return ((await answer.json()) as { choices: { text: string }[] }).choices[0]!.text;
  };
  try {
    const plain = await complete({ speculative: 'off' });
    expect(await count('drafted')).toBe(0);
    expect(await complete({})).toBe(plain); // as the model was loaded
    const byDefault = await count('drafted');
    expect(byDefault).toBeGreaterThan(0);
    expect(await complete({ speculative: 'lookup' })).toBe(plain);
    expect(await count('drafted')).toBeGreaterThan(byDefault);
    expect(await count('accepted')).toBe(model.metrics().speculation.numAcceptedTokens);
  } finally {
    await demo.close();
  }
});

test('clients that decode at the same time get the answers that they get alone, whatever drafts they chose', async () => {
  await using model = await loadDemoModel({
    speculative: 'lookup',
    now: fastClock(),
    kvCache: { prefixSharing: false },
  });
  const demo = await startServer({ models: [{ id: 'demo', model }] });
  const kinds = ['off', 'lookup', 'auto', undefined] as const;
  const complete = async (index: number, speculative: string | undefined): Promise<unknown> => {
    const prompt = `${index} ${verse.repeat(4)}`;
    const sampling = index < 3 ? { temperature: 0 } : { temperature: 0.8, seed: index };
    // clients that end later have more room for drafts
    const body = { model: 'demo', prompt, max_tokens: 30 * (1 + index), logprobs: 2, ...sampling, speculative };
    return ((await (await postJson(`${demo.url}/v1/completions`, body)).json()) as { choices: unknown }).choices;
  };
  try {
    const alone: unknown[] = [];
    for (const index of kinds.keys()) alone.push(await complete(index, 'off'));
    const { numSharedSteps } = model.metrics().steps;
    expect(await Promise.all(kinds.map((kind, index) => complete(index, kind)))).toEqual(alone);
    expect(model.metrics().steps.numSharedSteps).toBeGreaterThan(numSharedSteps);
    expect(model.metrics().speculation.numAcceptedTokens).toBeGreaterThan(0);
  } finally {
    await demo.close();
  }
});

test('a kind that the model was not loaded for is an error of the request', async () => {
  await using model = await loadDemoModel();
  const demo = await startServer({ models: [{ id: 'demo', model }] });
  try {
    for (const speculative of ['lookup', 'self', 'guess']) {
      const answer = await postJson(`${demo.url}/v1/completions`, { model: 'demo', prompt: 'A', speculative });
      expect(answer.status).toBe(400);
      expect(await answer.text()).toContain('speculative');
    }
  } finally {
    await demo.close();
  }
});
