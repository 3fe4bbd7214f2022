/** Grammars and schemas in generation, on the demo model: text, sampling, limits, resuming. */
import { memorySink } from '@winnow/bytes';
import { demoModelUrl } from '@winnow/demo-model';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { loadModel, type JsonSchema, type Model } from '../../src/index.js';
import { Scheduler } from '../../src/runtime/scheduler.js';

let model: Model;
beforeAll(async () => {
  model = await loadModel(demoModelUrl, { context: 512, threads: 2 });
});
afterAll(() => model.dispose());

const prompt = 'The captain looked at the sea and said';
const person: JsonSchema = {
  type: 'object',
  properties: {
    name: { type: 'string', minLength: 1, maxLength: 12 },
    age: { type: 'integer', minimum: 1, maximum: 99 },
    moods: { type: 'array', items: { enum: ['glad', 'sad'] }, maxItems: 3 },
  },
  required: ['name', 'age', 'moods'],
  additionalProperties: false,
};
const isPerson = new Ajv2020().compile(person as never);

describe('constrained generation', () => {
  test.each([
    ['greedy', { temperature: 0 }],
    ['sampled', { temperature: 1.2, seed: 4 }],
    ['all tokens are candidates', { temperature: 1, topK: 0, topP: 1, minP: 0, seed: 5 }],
    ['with penalties', { temperature: 0, repetitionPenalty: 1.3 }],
    ['few candidates', { temperature: 1, topK: 2, seed: 6 }],
  ])('the text is JSON that the schema accepts: %s', async (_name, options) => {
    const { text, finishReason } = await model
      .generate(prompt, { ...options, maxTokens: 200, jsonSchema: person })
      .result();
    expect([text, isPerson(JSON.parse(text))]).toEqual([text, true]);
    expect(finishReason).toBe('stop');
  });

  test('GBNF: the pieces add up to the text, log-probabilities are those of the model without the mask', async () => {
    const grammar = 'root ::= " " ("yes" | "no") "."';
    const generation = model.generate(prompt, { temperature: 0, grammar, numTopLogprobs: 3 });
    const pieces: string[] = [];
    const ids: number[] = [];
    const logprobs: number[] = [];
    for await (const { text, tokenId, logprob, topLogprobs } of generation) {
      pieces.push(text);
      ids.push(tokenId);
      logprobs.push(logprob);
      expect(topLogprobs).toHaveLength(3);
    }
    const { text, tokens, finishReason } = await generation.result();
    expect([pieces.join(''), tokens]).toEqual([text, ids]);
    expect(text).toMatch(/^ (yes|no)\.$/);
    expect(finishReason).toBe('stop');
    const all = [...model.encodePrompt(prompt), ...ids];
    const positions = ids.map((_, index) => all.length - ids.length - 1 + index);
    const rows = await model.logprobs(all, { positions });
    for (const [index, row] of rows.entries())
      expect(logprobs[index]).toBeCloseTo(row[ids[index] as number] as number, 3);
  });

  test('a grammar that allows everything changes nothing', async () => {
    for (const options of [{ temperature: 0 }, { temperature: 0.9, seed: 3 }]) {
      const free = await model.generate(prompt, { ...options, maxTokens: 30 }).result();
      const bound = await model.generate(prompt, { ...options, maxTokens: 30, grammar: 'root ::= .*' }).result();
      expect(bound.tokens).toEqual(free.tokens);
      expect(bound.text).toBe(free.text);
    }
  });
});

test('a generation takes part in the steps of others only after its grammar was compiled', async () => {
  const enter = vi.spyOn(Scheduler.prototype, 'enter');
  try {
    const refused = model.generate(prompt, { maxTokens: 1, grammar: 'root ::= missing' }).result();
    await expect(refused).rejects.toThrow('missing');
    expect(enter).not.toHaveBeenCalled();
    await model.generate(prompt, { maxTokens: 1, grammar: 'root ::= "a"' }).result();
    expect(enter).toHaveBeenCalledTimes(1);
  } finally {
    enter.mockRestore();
  }
});

test.each([
  ['temperature', { temperature: -1 }],
  ['maxTokens', { maxTokens: -1 }],
  ['showTokens', { showTokens: ['no such token'] }],
])('an invalid %s is refused before the grammar is compiled', async (argument, options) => {
  const refused = model.generate(prompt, { ...options, grammar: 'root ::= missing' }).result();
  await expect(refused).rejects.toMatchObject({ argument });
});

describe('where constrained text begins and ends', () => {
  test('stop sequences, limits and the end token', async () => {
    const letters = { temperature: 0, grammar: 'root ::= "ab"{10}' };
    const stopped = await model.generate(prompt, { ...letters, stop: ['bab'] }).result();
    expect([stopped.text, stopped.finishReason]).toEqual(['a', 'stop']);
    const cut = await model.generate(prompt, { ...letters, maxTokens: 3 }).result();
    expect([cut.finishReason, 'ab'.repeat(10).startsWith(cut.text)]).toEqual(['length', true]);
    const empty = await model.generate(prompt, { temperature: 0, grammar: 'root ::= ""' }).result();
    expect([empty.text, empty.finishReason]).toEqual(['', 'eos']);
    // the end token may come after a line but not within one
    const lines = await model
      .generate(prompt, { temperature: 1, seed: 1, maxTokens: 60, grammar: 'root ::= ("x\\n")+' })
      .result();
    expect(lines.text).toMatch(lines.finishReason === 'eos' ? /^(x\n)+$/ : /^(x\n)*x?$/);
  });

  test('after a prompt of special tokens only, the text matches the grammar exactly', async () => {
    const first = model.tokenizer.eosId as number;
    const { text } = await model.generate([first], { temperature: 0, grammar: 'root ::= " a " [b-d]' }).result();
    expect(text).toMatch(/^ a [b-d]$/);
  });
});

describe('grammars across generations', () => {
  test('resuming continues within the grammar, even twice', async () => {
    const whole = await model
      .generate(prompt, { temperature: 1, seed: 9, maxTokens: 100, jsonSchema: person })
      .result();
    const session = model.createSession();
    const options = { temperature: 1, seed: 9, jsonSchema: person };
    let { text } = await session.generate(prompt, { ...options, maxTokens: 3 }).result();
    for (const maxTokens of [4, 100]) text += (await session.resume({ maxTokens }).result()).text;
    expect(text).toBe(whole.text);
    // another grammar starts from its root
    const { text: more } = await session.resume({ temperature: 0, grammar: 'root ::= "?!"' }).result();
    expect(more).toBe('?!');
    session.dispose();
  });

  test('a saved session continues within its grammar', async () => {
    const options = { temperature: 1, seed: 9, jsonSchema: person };
    const whole = await model.generate(prompt, { ...options, maxTokens: 100 }).result();
    const session = model.createSession();
    let { text } = await session.generate(prompt, { ...options, maxTokens: 3 }).result();
    text += (await session.resume({ maxTokens: 4 }).result()).text;
    const sink = memorySink();
    await session.save(sink);
    session.dispose();
    using restored = await model.restoreSession(new Blob([sink.toBytes()]));
    text += (await restored.resume({ maxTokens: 100 }).result()).text;
    expect(text).toBe(whole.text);
  });
});

describe('large schemas', () => {
  const properties = Object.fromEntries(
    Array.from({ length: 100 }, (_, index) => [
      `p${index}`,
      { type: 'string', pattern: `^[a-z]{1,${20 + index}}[0-9]+$` },
    ]),
  );
  const large = (more: object): JsonSchema => ({ type: 'object', properties, additionalProperties: false, ...more });

  test('the event loop turns while one compiles, and requests share the compilation', async () => {
    let numTurns = 0;
    const timer = setInterval(() => numTurns++, 0);
    const jsonSchema = large({ title: 'turns' });
    const generate = (): Promise<unknown> => model.generate(prompt, { jsonSchema, maxTokens: 2 }).result();
    await Promise.all([generate(), generate()]);
    clearInterval(timer);
    expect(numTurns).toBeGreaterThan(5);
  });

  test('an aborted request stops waiting, and the next one compiles', async () => {
    const jsonSchema = large({ title: 'abort' });
    const controller = new AbortController();
    const aborted = model.generate(prompt, { jsonSchema, maxTokens: 2, signal: controller.signal }).result();
    setTimeout(() => controller.abort());
    await expect(aborted).rejects.toThrow(/abort/i);
    expect((await model.generate(prompt, { jsonSchema, maxTokens: 2 }).result()).tokens).toHaveLength(2);
  });
});

describe('control tokens and errors', () => {
  test('control tokens are shown on request, and a grammar can require them', async () => {
    const special = '<|im_start|>';
    expect(model.tokenizer.isSpecial(model.tokenizer.idOf(special) as number)).toBe(true);
    const grammar = `root ::= "a${special}b"`;
    const shown = await model.generate(prompt, { temperature: 0, grammar, showTokens: [special] }).result();
    expect(shown.text).toBe(`a${special}b`);
    expect(shown.tokens).toHaveLength(3);
    const spelled = await model.generate(prompt, { temperature: 0, grammar }).result();
    expect(spelled.text).toBe(`a${special}b`);
    expect(spelled.tokens.length).toBeGreaterThan(3);
  });

  test.each([
    [{ grammar: 'root ::=  (' }, 'format'],
    [{ jsonSchema: { not: {} } }, 'format'],
    [{ grammar: 'root ::= "a"', jsonSchema: true }, 'argument'],
    [{ showTokens: ['<none>'] }, 'argument'],
    [{ grammar: 'root ::= []' }, 'argument'],
  ])('%j is rejected', async (options, code) => {
    await expect(model.generate(prompt, { maxTokens: 3, ...options }).result()).rejects.toMatchObject({ code });
  });
});
