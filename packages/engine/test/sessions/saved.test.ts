/** Saved sessions resume token for token, and damaged or foreign files are rejected. */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { memorySink, memorySource } from '@winnow/bytes';
import { createWasmBackend } from '@winnow/backend-wasm';
import { demoModelUrl } from '@winnow/demo-model';
import { bytesSection, openSession, writeSession } from '@winnow/kv-cache';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { ArgumentError, CapacityError, createRng, FormatError, IoError } from '@winnow/tensor';
import { sampled, sourceArguments, testCoverage } from '@winnow/test-utils';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadModel, type GenerateOptions, type LoadOptions, type Model, type Session } from '../../src/index.js';
import { archPath } from '../support/golden-files.js';
import { tinyFolder } from '../support/tiny-model.js';
import { greedy, ids } from '../support/prompts.js';

const path = archPath('llama', 'model.gguf') as string;
const drawn = { temperature: 1, topK: 0, topP: 1, minP: 0, ignoreEos: true, seed: 5 } as const;

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'winnow-engine-'));
});
afterAll(() => rm(folder, { recursive: true }));

async function save(session: Session): Promise<Uint8Array> {
  const sink = memorySink();
  const { sizeBytes } = await session.save(sink);
  expect(sizeBytes).toBe(sink.sizeBytes);
  return sink.toBytes().slice();
}

/** A session of 150 tokens whose keys and values are those of other tokens. */
async function forgedSession(model: Model): Promise<Uint8Array> {
  using session = model.createSession();
  await session.generate(ids(150), { ...greedy, maxTokens: 1 }).result();
  const honest = await openSession(memorySource(await save(session)));
  using other = model.createSession();
  await other.generate(ids(150, 11), { ...greedy, maxTokens: 1 }).result();
  const source = await openSession(memorySource(await save(other)));
  const sections = await Promise.all(
    honest.sections.map(async ({ name }) => {
      const from = name === 'tokens' || name === 'positions' ? honest : source;
      return bytesSection(name, await from.readAll(name));
    }),
  );
  const sink = memorySink();
  await writeSession(sink, { ...honest, sections });
  return sink.toBytes().slice();
}

const backends: Readonly<Record<string, () => Backend | Promise<Backend>>> = {
  reference: () => createReferenceBackend(),
  wasm: () => createWasmBackend({ numThreads: 1, maxMemoryBytes: 2 ** 27 }),
};

/** Numbers of tokens: in all, before the saves, and compared after each save: more than a cache block. */
const [numWhole, numBefore, mostResumed] =
  testCoverage === 'full' ? [260, [1, 59, 200, 230], 260] : [130, [1, 59, 105, 115], 66];

describe.each(sampled(['wasm', 'reference'], 2))('on %s', (name) => {
  const cases: readonly (readonly [string, GenerateOptions, LoadOptions])[] = [
    ['greedy', greedy, {}],
    ['drawn with penalties', { ...drawn, penaltyWindow: 20, repetitionPenalty: 1.2 }, {}],
    ['keys and values of 16 bits', drawn, { kvCache: { dtype: { keys: 'bf16', values: 'f16' } } }],
    [
      'beyond the context, by blocks',
      { ...drawn, overflow: 'slide' },
      { context: testCoverage === 'full' ? 256 : 128 },
    ],
    ['beyond the context, by tokens', { ...drawn, overflow: 'evict' }, { context: 100 }],
  ];

  test.each(cases)('%s: another model resumes token for token', async (_name, options, load) => {
    const make = async (): Promise<[Model, Backend]> => {
      const backend = await backends[name]!();
      const kvCache = { capacity: 1024, ...load.kvCache };
      return [await loadModel(path, { context: 512, maxSessions: 2, ...load, kvCache, backend }), backend];
    };
    const [model, backend] = await make();
    const prompt = ids(70);
    const whole = (await model.generate(prompt, { ...options, maxTokens: numWhole }).result()).tokens;
    const session = model.createSession();
    const parts: number[] = [];
    const saved: Uint8Array[] = [];
    const sizes: number[] = [];
    for await (const { tokenId } of session.generate(prompt, { ...options, maxTokens: numBefore[3]! })) {
      // saves while generating
      if (numBefore.slice(0, 3).includes(parts.push(tokenId))) {
        saved.push(await save(session));
        sizes.push(parts.length);
      }
    }
    expect(parts).toEqual(whole.slice(0, numBefore[3]));
    saved.push(await save(session)); // at the end
    sizes.push(parts.length);
    session.dispose();
    await model.dispose();
    await backend.dispose();

    const [other, otherBackend] = await make();
    // the cache already holds another session
    using busy = other.createSession();
    await busy.generate(ids(75, 11), { ...greedy, maxTokens: 1 }).result();
    for (const [index, bytes] of saved.entries()) {
      using restored = await other.restoreSession(memorySource(bytes));
      const begin = sizes[index]!;
      const rest = await restored.resume({ maxTokens: Math.min(mostResumed, numWhole - begin) }).result();
      expect(rest.tokens).toEqual(whole.slice(begin, begin + mostResumed));
      expect(rest.cachedTokens).toBe(70 + begin - 1);
    }
    await other.dispose();
    await otherBackend.dispose();
  });
});

describe.each(['lfm2', 'qwen35', 'granitehybrid', 'mamba', 'mamba2-groups'])('recurrent states of %s', (name) => {
  const hybrid = archPath(name, 'model.gguf');
  const missing = hybrid === undefined ? ' (needs ../shared/data/goldens)' : '';
  test.skipIf(hybrid === undefined)(`saved and restored${missing}`, async () => {
    const file = hybrid as string;
    await using model = await loadModel(file, { context: 256, maxSessions: 3 });
    const whole = (await model.generate(ids(70), { ...drawn, maxTokens: 60 }).result()).tokens;
    using session = model.createSession();
    await session.generate(ids(70), { ...drawn, maxTokens: 25 }).result();
    const bytes = await save(session);
    await using other = await loadModel(file, { context: 192, maxSessions: 1 });
    using restored = await other.restoreSession(memorySource(bytes));
    const rest = await restored.resume({ maxTokens: 35 }).result();
    expect([rest.cachedTokens, rest.tokens]).toEqual([94, whole.slice(25)]);
  });
});

describe('contents of a file', () => {
  test('a session without a generation restores its cache; metadata is kept', async () => {
    await using model = await loadModel(path, { context: 256 });
    using session = model.createSession();
    const metadata = { messages: [{ role: 'user', content: 'Grüße' }], n: [1, 2.5, null] };
    const empty = memorySink();
    expect(await session.save(empty, { metadata })).toMatchObject({ numTokens: 0 });
    using nothing = await model.restoreSession(memorySource(empty.toBytes()));
    expect([nothing.tokens, nothing.metadata, session.metadata]).toEqual([[], metadata, null]);
    await expect(nothing.resume().result()).rejects.toThrow(ArgumentError);
    await session.generate(ids(80), { ...greedy, maxTokens: 0 }).result();
    using cached = await model.restoreSession(memorySource(await save(session)));
    expect(cached.tokens).toEqual(ids(80));
    const result = await cached.generate([...ids(80), 1], { ...greedy, maxTokens: 3 }).result();
    expect(result.cachedTokens).toBe(80);
    expect(result.tokens).toEqual((await model.generate([...ids(80), 1], { ...greedy, maxTokens: 3 }).result()).tokens);
  });

  test('restored blocks are shared with forks alone: a file may have been forged', async () => {
    await using model = await loadModel(path, { context: 256, maxSessions: 3 });
    const forged = await forgedSession(model);
    const prompt = ids(140);
    await using other = await loadModel(path, { context: 256, maxSessions: 3, kvCache: { capacity: 1024 } });
    const honest = await model.generate(prompt, { ...greedy, maxTokens: 4 }).result();
    const restored = await other.restoreSession(memorySource(forged));
    using copy = restored.fork();
    const deceived = await copy.generate(prompt, { ...greedy, maxTokens: 4 }).result();
    expect([deceived.cachedTokens, deceived.tokens]).not.toEqual([0, honest.tokens]);
    restored.dispose();
    const result = await other.generate(prompt, { ...greedy, maxTokens: 4 }).result();
    expect([result.cachedTokens, result.tokens]).toEqual([0, honest.tokens]);
  });

  test.skipIf(process.platform === 'win32')('is readable only by its owner', async () => {
    await using model = await loadModel(path, { context: 64 });
    using session = model.createSession();
    const file = join(folder, 'private.session');
    await session.save(file);
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    await rm(file);
  });

  test('it contains no data of other sessions', async () => {
    await using model = await loadModel(path, { context: 128, maxSessions: 1, kvCache: { prefixSharing: false } });
    using session = model.createSession();
    await session.generate(ids(3), { ...greedy, seed: 1, maxTokens: 1 }).result();
    const before = await save(session);
    await session.generate(ids(120, 11), { ...greedy, maxTokens: 1 }).result();
    await session.generate(ids(3), { ...greedy, seed: 1, maxTokens: 1 }).result();
    const differs = (await save(session)).some((byte, index) => byte !== before[index]);
    expect(differs).toBe(false);
  });
});

describe('rejected files', () => {
  test('of other models, other weights and other cache options', async () => {
    await using model = await loadModel(path, { context: 256 });
    using session = model.createSession();
    await session.generate(ids(20), { ...greedy, maxTokens: 5 }).result();
    const bytes = await save(session);
    await using halves = await loadModel(path, { context: 256, kvCache: { dtype: 'f16' } });
    await expect(halves.restoreSession(memorySource(bytes))).rejects.toThrow(
      'options.keyDType: expected "f16", got "f32"',
    );
    await using tiny = await loadModel(await tinyFolder());
    await expect(tiny.restoreSession(memorySource(bytes))).rejects.toThrow(/modelHash: expected/);
    // a copy that differs in one weight
    const gguf = await readFile(path);
    gguf[gguf.length - 40]! ^= 1;
    await using changed = await loadModel(memorySource(gguf), { context: 256 });
    await expect(changed.restoreSession(memorySource(bytes))).rejects.toThrow(/modelHash: expected/);
    // the context size may differ; a session that does not fit is an error
    await using small = await loadModel(path, { context: 64, maxSessions: 1 });
    using fits = await small.restoreSession(memorySource(bytes));
    expect(fits.tokens).toHaveLength(24);
    await expect(small.restoreSession(memorySource(bytes))).rejects.toThrow(CapacityError);
    fits.dispose();
    await session.generate(ids(100), { ...greedy, maxTokens: 1 }).result();
    await expect(small.restoreSession(memorySource(await save(session)))).rejects.toThrow(CapacityError);
    expect(small.metrics()).toMatchObject({ numSessions: 0, cache: { numUsedBlocks: 0 } });
  });

  test('damaged anywhere, without affecting the model', async () => {
    await using model = await loadModel(await tinyFolder(), { context: 64, maxSessions: 2 });
    using session = model.createSession();
    await session.generate([1, 2, 3], { ...drawn, maxTokens: 5 }).result();
    const bytes = await save(session);
    const rng = createRng(3);
    const { numUsedBlocks } = model.metrics().cache;
    for (let i = 0; i < 150; i++) {
      const damaged = bytes.slice(0, i % 3 === 0 ? rng.nextInt(bytes.length) : bytes.length);
      if (i % 3 !== 0) damaged[rng.nextInt(damaged.length)]! ^= 1 << rng.nextInt(8);
      await expect(model.restoreSession(memorySource(damaged))).rejects.toThrow(FormatError);
    }
    expect(model.metrics()).toMatchObject({ numSessions: 1, cache: { numUsedBlocks } });
    using whole = await model.restoreSession(new Blob([bytes.slice()]));
    expect(whole.tokens).toEqual(session.tokens);
  });
});

describe('files', () => {
  test('are replaced atomically', async () => {
    await using model = await loadModel(path, { context: 256 });
    using session = model.createSession();
    const file = join(folder, 'replaced.session');
    await session.generate(ids(100), { ...greedy, maxTokens: 2 }).result();
    await session.save(file);
    const before = await readFile(file);
    await session.generate(ids(200), { ...greedy, maxTokens: 2 }).result();
    const signal = AbortSignal.abort(new Error('enough'));
    await expect(session.save(file, { signal })).rejects.toThrow('enough');
    expect(await readFile(file)).toEqual(before);
    await expect(session.save(join(folder, 'no', 'such', 'folder'))).rejects.toThrow(IoError);
    await session.save(file);
    expect((await readFile(file)).length).toBeGreaterThan(before.length);
    expect(await readdir(folder)).toEqual(['replaced.session']);
    using restored = await model.restoreSession(file);
    expect(restored.tokens).toHaveLength(201);
    await expect(model.restoreSession(join(folder, 'none'))).rejects.toThrow(IoError);
    await writeFile(join(folder, 'text'), 'not a session, but long enough to be one');
    await expect(model.restoreSession(join(folder, 'text'))).rejects.toThrow('this is not a session file');
    await rm(join(folder, 'text'));
  });

  test('saving while this session and others generate', async () => {
    await using model = await loadModel(path, {
      context: 512,
      kvCache: { capacity: 1024, prefixSharing: false },
      maxSessions: 4,
    });
    const expected = await Promise.all(
      [3, 7, 11].map((step) => model.generate(ids(70, step), { ...drawn, maxTokens: 80 }).result()),
    );
    const sessions = [3, 7, 11].map(() => model.createSession());
    const running = sessions.map((session, index) =>
      session.generate(ids(70, [3, 7, 11][index]), { ...drawn, maxTokens: 80 }).result(),
    );
    const files: Uint8Array[] = [];
    for (let i = 0; i < 6; i++) {
      await new Promise((resolve) => setTimeout(resolve, 5));
      files.push(await save(sessions[0]!));
    }
    const results = await Promise.all(running);
    expect(results.map(({ tokens }) => tokens)).toEqual(expected.map(({ tokens }) => tokens));
    for (const session of sessions) session.dispose();
    expect(model.metrics().cache.numUsedBlocks).toBe(0);
    for (const bytes of files) {
      using restored = await model.restoreSession(memorySource(bytes));
      const numChosen = restored.tokens.length - 70 + 1;
      if (numChosen < 1 || numChosen >= 80) continue;
      const rest = await restored.resume({ maxTokens: 80 - numChosen }).result();
      expect(rest.tokens).toEqual(expected[0]!.tokens.slice(numChosen));
    }
  });
});

test('the last save of a killed process can be resumed', async () => {
  const file = join(folder, 'killed.session');
  const script = join(import.meta.dirname, 'save-often.ts');
  const argv = [...sourceArguments, script, file];
  const child = spawn(process.execPath, argv, { stdio: ['ignore', 'pipe', 'inherit'] });
  const exit = new Promise<NodeJS.Signals | null>((resolve) => child.once('exit', (_code, signal) => resolve(signal)));
  let text = '';
  for await (const chunk of child.stdout) {
    text += String(chunk);
    if (text.split('\n').length > 6) break; // kill it while it is running
  }
  child.kill('SIGKILL');
  expect(await exit).toBe('SIGKILL');
  expect(existsSync(file)).toBe(true);
  await using model = await loadModel(demoModelUrl, { context: 512, maxSessions: 2 });
  using restored = await model.restoreSession(file);
  const numPrompt = model.encodePrompt('The old man').length;
  const numChosen = restored.tokens.length - numPrompt + 1;
  expect(numChosen).toBeGreaterThan(4);
  const maxTokens = numChosen + 20;
  const { tokens } = await model.generate('The old man', { ...drawn, seed: 12, maxTokens }).result();
  const rest = await restored.resume({ maxTokens: maxTokens - numChosen }).result();
  expect(rest.tokens).toEqual(tokens.slice(numChosen));
  expect(restored.metadata).toEqual({ saved: numChosen });
  await rm(file);
});

test('a grammar of a restored session that is too large is refused with its place', async () => {
  await using model = await loadModel(demoModelUrl, { context: 256, maxSessions: 2 });
  using session = model.createSession();
  await session.generate('The', { temperature: 0, maxTokens: 2, grammar: 'root ::= [a-z ]+' }).result();
  const saved = await openSession(memorySource(await save(session)));
  const { generation } = saved.metadata as { generation: { options: object } };
  const options = { ...generation.options, grammar: 'root ::= "a" rest\nrest ::= ("a"{900}){900}' };
  const metadata = { generation: { ...generation, options }, caller: null } as typeof saved.metadata;
  const sections = await Promise.all(
    saved.sections.map(async ({ name }) => bytesSection(name, await saved.readAll(name))),
  );
  const sink = memorySink();
  await writeSession(sink, { ...saved, metadata, sections });
  using restored = await model.restoreSession(memorySource(sink.toBytes().slice()));
  const refusal = { code: 'capacity', source: 'grammar', field: 'rest' };
  await expect(restored.resume({ maxTokens: 2 }).result()).rejects.toMatchObject(refusal);
});
