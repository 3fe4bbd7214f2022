/** The contract as checks: each takes a backend and throws when the backend violates it. No test runner is needed. */
import type { InferenceBackend, InferencePrompt, InferenceResult, InferenceToken } from './contract.js';

export interface InferenceCheck {
  readonly name: string;
  /** @param prompt a text that the backend's model continues with at least 12 tokens, some of which have text */
  run(backend: InferenceBackend, prompt: string): Promise<void>;
}

const greedy = { temperature: 0 } as const;

export const inferenceChecks: readonly InferenceCheck[] = [
  {
    name: 'the same greedy request gives the same text',
    async run(backend, prompt) {
      const first = await backend.generate(prompt, { ...greedy, maxTokens: 12 });
      const second = await backend.generate(prompt, { ...greedy, maxTokens: 12 });
      same('the second answer', second, first);
      check(first.tokens.length > 0, `expected tokens, got none (${first.finishReason})`);
      check(first.text !== '', 'expected some text, got none');
    },
  },
  {
    name: 'a stream yields the answer token by token and the complete result at its end',
    async run(backend, prompt) {
      const whole = await backend.generate(prompt, { ...greedy, maxTokens: 12 });
      const stream = backend.generateStream(prompt, { ...greedy, maxTokens: 12 });
      const tokens = await collect(stream);
      same('its concatenated texts', tokens.map(({ text }) => text).join(''), whole.text);
      same('its tokens', tokens.map(({ tokenId }) => tokenId).slice(0, whole.tokens.length), whole.tokens);
      same('its result', await stream.result(), whole);
      same(
        'its result without a loop',
        await backend.generateStream(prompt, { ...greedy, maxTokens: 12 }).result(),
        whole,
      );
      for (const { tokenId, logprob } of tokens) {
        check(Number.isSafeInteger(tokenId) && tokenId >= 0 && tokenId < backend.vocabSize, `token id ${tokenId}`);
        check(logprob <= 1e-6, `expected a log-probability of at most 0, got ${logprob}`);
      }
    },
  },
  {
    name: 'maxTokens bounds the answer',
    async run(backend, prompt) {
      for (const maxTokens of [1, 4]) {
        const { tokens, finishReason } = await backend.generate(prompt, { ...greedy, maxTokens });
        same(`tokens and reason for ${maxTokens}`, [tokens.length, finishReason], [maxTokens, 'length']);
      }
      const none = await backend.generate(prompt, { ...greedy, maxTokens: 0 });
      same('an answer of no tokens', [none.text, none.tokens.length, none.finishReason], ['', 0, 'length']);
      check(none.numPromptTokens > 0, 'expected a count of prompt tokens');
    },
  },
  {
    name: 'a stop sequence ends the answer before it',
    async run(backend, prompt) {
      const { text } = await backend.generate(prompt, { ...greedy, maxTokens: 12 });
      const middle = Math.floor(text.length / 2);
      const stop = text.slice(middle, middle + 2);
      const stream = backend.generateStream(prompt, { ...greedy, maxTokens: 12, stop: [stop] });
      const pieces = (await collect(stream)).map((token) => token.text).join('');
      const stopped = await stream.result();
      same('the text', stopped.text, text.slice(0, text.indexOf(stop)));
      same('the pieces', pieces, stopped.text);
      same('the reason', stopped.finishReason, 'stop');
    },
  },
  {
    name: 'logits agree with the greedy token and its log-probability',
    async run(backend, prompt) {
      const tokens = await collect(backend.generateStream(prompt, { ...greedy, maxTokens: 2 }));
      const logits = await backend.logits(prompt);
      same('how many', logits.length, backend.vocabSize);
      const total = logits.reduce((sum, logit) => sum + Math.exp(logit), 0);
      check(Math.abs(total - 1) < 1e-3, `expected exponentials that sum to 1, got ${total}`);
      const [first] = tokens as [InferenceToken];
      const best = logits.reduce((top, logit, id) => (logit > (logits[top] as number) ? id : top), 0);
      const gap = (logits[best] as number) - (logits[first.tokenId] as number);
      check(gap < 1e-2, `expected the greedy token ${first.tokenId} to be the best, got ${best}`);
      const difference = Math.abs((logits[first.tokenId] as number) - first.logprob);
      check(difference < 2e-2, `expected the log-probability ${first.logprob}, got ${logits[first.tokenId]}`);
    },
  },
  {
    name: 'a seed reproduces a sampled answer, another one changes it',
    async run(backend, prompt) {
      const options = { temperature: 1.5, topK: 0, topP: 1, maxTokens: 12 };
      const first = await backend.generate(prompt, { ...options, seed: 1 });
      same('the answer to the same seed', await backend.generate(prompt, { ...options, seed: 1 }), first);
      const others = [];
      for (const seed of [2, 3, 4]) others.push(await backend.generate(prompt, { ...options, seed }));
      check(
        others.some(({ text }) => text !== first.text),
        'expected different answers for different seeds, got the same',
      );
    },
  },
  {
    name: 'an aborted request fails with the reason and leaves nothing behind',
    async run(backend, prompt) {
      const reason = new Error('enough');
      const { numActive } = backend.metrics();
      await fails(
        'a request that was aborted before it started',
        backend.generate(prompt, { signal: AbortSignal.abort(reason) }),
        reason,
      );
      const controller = new AbortController();
      const stream = backend.generateStream(prompt, { ...greedy, signal: controller.signal });
      const ended = (async () => {
        for await (const token of stream) if (token !== undefined) controller.abort(reason);
      })();
      await fails('a request that was aborted while running', ended, reason);
      same('requests in progress', backend.metrics().numActive, numActive);
      await backend.generate(prompt, { ...greedy, maxTokens: 2 });
    },
  },
  {
    name: 'leaving streams early releases their slots',
    async run(backend, prompt) {
      const { numActive } = backend.metrics();
      for (let i = 0; i < 24; i++) {
        for await (const token of backend.generateStream(prompt, greedy)) if (token !== undefined) break;
      }
      same('requests in progress', backend.metrics().numActive, numActive);
    },
  },
  {
    name: 'concurrent requests get the same results as separate ones',
    async run(backend, prompt) {
      const prompts = [prompt, `${prompt} and`, `${prompt}.`];
      const alone: InferenceResult[] = [];
      for (const text of prompts) alone.push(await backend.generate(text, { ...greedy, maxTokens: 8 }));
      const together = await Promise.all(prompts.map((text) => backend.generate(text, { ...greedy, maxTokens: 8 })));
      for (const [index, result] of together.entries()) same(`answer ${index}`, result.text, alone[index]?.text);
    },
  },
  {
    name: 'metrics count requests and tokens',
    async run(backend, prompt) {
      const before = backend.metrics();
      const { tokens, numPromptTokens } = await backend.generate(prompt, { ...greedy, maxTokens: 3 });
      const after = backend.metrics();
      same('generations', after.numGenerations, before.numGenerations + 1);
      same('prompt tokens', after.numPromptTokens, before.numPromptTokens + numPromptTokens);
      same('generated tokens', after.numGeneratedTokens, before.numGeneratedTokens + tokens.length);
      check(after.promptMs >= before.promptMs && after.generateMs >= before.generateMs, 'expected increasing times');
      await fails('an empty prompt', backend.generate([]));
      same('failures', backend.metrics().numFailed, before.numFailed + 1);
    },
  },
  {
    name: 'invalid prompts are rejected, and the next one works',
    async run(backend, prompt) {
      const refused: readonly (readonly [string, InferencePrompt])[] = [
        ['no tokens', []],
        ['an id outside the vocabulary', [backend.vocabSize]],
        ['a negative id', [-1]],
        ['more tokens than fit', new Int32Array(backend.contextSize + 1)],
      ];
      for (const [name, ids] of refused) {
        await fails(name, backend.generate(ids, { ...greedy, maxTokens: 1 }));
        await fails(`${name} in a stream`, collect(backend.generateStream(ids, { ...greedy, maxTokens: 1 })));
        await fails(`logits of ${name}`, backend.logits(ids));
      }
      await backend.generate(prompt, { ...greedy, maxTokens: 2 });
    },
  },
  {
    name: 'a JSON schema is enforced, where supported',
    async run(backend, prompt) {
      if (!backend.supportsJsonSchema) return;
      const jsonSchema = {
        type: 'object',
        properties: { mood: { enum: ['glad', 'sad'] }, age: { type: 'integer', minimum: 1, maximum: 99 } },
        required: ['mood', 'age'],
        additionalProperties: false,
      };
      for (const seed of [1, 2]) {
        const { text } = await backend.generate(prompt, { temperature: 1, seed, maxTokens: 100, jsonSchema });
        const value = JSON.parse(text) as { mood: string; age: number };
        same('its members', Object.keys(value).sort(), ['age', 'mood']);
        check(['glad', 'sad'].includes(value.mood), `mood ${value.mood}`);
        check(Number.isInteger(value.age) && value.age >= 1 && value.age <= 99, `age ${value.age}`);
      }
      await fails('a schema that cannot be enforced', backend.generate(prompt, { jsonSchema: { not: {} } }));
    },
  },
];

async function collect(stream: AsyncIterable<InferenceToken>): Promise<InferenceToken[]> {
  const tokens: InferenceToken[] = [];
  for await (const token of stream) tokens.push(token);
  return tokens;
}

function check(condition: boolean, message: string): void {
  if (!condition) throw new Error(message);
}

function same(what: string, actual: unknown, expected: unknown): void {
  const [found, wanted] = [JSON.stringify(actual), JSON.stringify(expected)];
  check(found === wanted, `${what}: expected ${wanted}, got ${found}`);
}

async function fails(what: string, promise: Promise<unknown>, reason?: unknown): Promise<void> {
  let error: unknown;
  try {
    await promise;
  } catch (caught) {
    error = caught;
  }
  check(error instanceof Error, `${what}: expected an error, got ${error === undefined ? 'none' : String(error)}`);
  if (reason !== undefined) check(error === reason, `${what}: expected the reason of the signal, got ${String(error)}`);
}
