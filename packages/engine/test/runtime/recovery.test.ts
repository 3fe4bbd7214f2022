/** Recovery from a lost device: draws, evicted positions, weights in tiers, embeddings, changed files. */
import { readFileSync } from 'node:fs';
import { memorySink, memorySource, type ByteSource } from '@winnow/bytes';
import { createReferenceBackend } from '@winnow/ops';
import { DeviceLostError, FormatError, type CapacityError } from '@winnow/tensor';
import { testCoverage } from '@winnow/test-utils';
import { afterEach, describe, expect, test } from 'vitest';
import {
  loadEmbeddingModel,
  loadModel,
  type GenerateOptions,
  type LoadOptions,
  type Model,
  type ModelLocation,
} from '../../src/index.js';
import { archPath } from '../support/golden-files.js';
import { losesOnceIn, losingDevices, type Devices } from '../support/losing-devices.js';

const llama = archPath('llama', 'model.gguf') as string;
const encoder = archPath('bert-mean', 'model.gguf') as string;
const mixtral = archPath('mixtral', 'model.gguf');
const ids = (length: number, step = 7): number[] => Array.from({ length }, (_, index) => (index * step) % 200);

const models: Model[] = [];
afterEach(async () => {
  for (const model of models.splice(0)) await model.dispose();
});

async function load(devices: Devices, options: LoadOptions = {}, from: ModelLocation = llama): Promise<Model> {
  const model = await loadModel(from, { context: 128, createBackend: devices.createBackend, ...options });
  models.push(model);
  return model;
}

/** The file of a model, whose bytes may change while it is open. */
function fileOf(path: string): { readonly source: ByteSource; bytes: Uint8Array } {
  const file = { bytes: new Uint8Array(readFileSync(path)), source: undefined as unknown as ByteSource };
  file.source = {
    name: 'the model',
    sizeBytes: file.bytes.length,
    read: (byteOffset, target, options) => memorySource(file.bytes).read(byteOffset, target, options),
    close: async () => undefined,
  };
  return file;
}

test('each token is drawn once, whichever read loses the device', async () => {
  const options: GenerateOptions = {
    ...{ temperature: 1.5, seed: 11, ignoreEos: true, maxTokens: 5, numTopLogprobs: 3, repetitionPenalty: 1.3 },
    jsonSchema: { type: 'array', items: { type: 'integer' }, minItems: 4 },
  };
  for (const given of [options, { ...options, jsonSchema: undefined, repetitionPenalty: 1 }]) {
    const devices = losingDevices(
      (moment, { numCreated, numRuns }) => moment === 'read' && numRuns > 0 && numCreated === 1 && --left === 0,
    );
    const generate = async (): Promise<readonly number[]> => {
      [devices.numCreated, devices.numRuns] = [0, 0];
      const model = await load(devices);
      return (await model.generate(ids(10), given as GenerateOptions).result()).tokens;
    };
    let left = -1;
    const expected = await generate();
    const numReads = -1 - left;
    // a step of 5 meets each kind of read of a token
    for (let read = 1; read <= numReads; read += testCoverage === 'full' ? 1 : 5) {
      left = read;
      expect(await generate(), `lost at read ${read}`).toEqual(expected);
    }
  }
});

describe('sequences with evicted positions', () => {
  const greedy = { temperature: 0, ignoreEos: true, maxTokens: 110 } as const;

  test.each([
    ['slide', {}],
    ['evict', {}],
    ['evict', { kvCache: { eviction: 'least-attended' } }],
  ] as const)('%s %o: recomputed with the same positions evicted', async (overflow, loading) => {
    const options = { ...greedy, overflow };
    const tokensOf = async (devices: Devices): Promise<readonly number[]> => {
      const model = await load(devices, { ...loading, batchSize: 16 });
      return (await model.generate(ids(60), options).result()).tokens;
    };
    const expected = await tokensOf(losingDevices());
    expect(await tokensOf(losesOnceIn(100))).toEqual(expected);
  });

  test('idle sessions and their forks continue; waiting requests are recomputed when there is room', async () => {
    const options = { ...greedy, overflow: 'slide' } as const;
    const prompts = [ids(60), ids(70, 11)];
    const runAll = async (devices: Devices): Promise<readonly (readonly number[])[]> => {
      const model = await load(devices, { kvCache: { capacity: 256, whenFull: 'wait' } });
      const session = model.createSession();
      const first = await session.generate(prompts[0] as number[], options).result();
      devices.lose();
      const next = [...(prompts[0] as number[]), ...first.tokens];
      const sessions = [session, session.fork()];
      return Promise.all(
        sessions.map(async (one) => (await one.generate(next, { ...options, maxTokens: 40 }).result()).tokens),
      );
    };
    const quiet = losingDevices();
    const expected = await runAll({ ...quiet, lose: () => undefined });
    expect(await runAll(losingDevices())).toEqual(expected);
  });

  test('a session saved after eviction fails with an error that says why', async () => {
    const devices = losingDevices();
    const model = await load(devices);
    const session = model.createSession();
    const { tokens } = await session.generate(ids(60), { ...greedy, overflow: 'slide' }).result();
    const sink = memorySink();
    await session.save(sink);
    const restored = await model.restoreSession(memorySource(sink.toBytes()));
    const generation = restored.generate([...ids(60), ...tokens], { ...greedy, overflow: 'slide' });
    const steps = generation[Symbol.asyncIterator]();
    for (let i = 0; i < 5; i++) await steps.next();
    devices.lose();
    const rest = (async () => {
      while ((await steps.next()).done !== true);
    })();
    await expect(rest).rejects.toThrow(DeviceLostError);
    await expect(rest).rejects.toThrow(/evicted before the session was saved/);
  });
});

describe.skipIf(mixtral === undefined)(`weights in tiers${mixtral ? '' : ' (needs ../shared/data/goldens)'}`, () => {
  test.each(['run', 'write', 'read'] as const)('are reloaded after a loss at a %s', async (moment) => {
    const options = { context: 64, batchSize: 8, maxSessions: 1 };
    const needed = await loadModel(mixtral as string, {
      ...{ ...options, backend: createReferenceBackend(), memory: 1 },
    }).then(
      () => 0,
      (error: unknown) => (error as CapacityError).needed,
    );
    const generate = async (devices: Devices): Promise<readonly number[]> => {
      const model = await load(devices, { ...options, memory: needed }, mixtral as string);
      const { tokens } = await model.generate([1, 2, 3, 4], { temperature: 0, maxTokens: 10 }).result();
      expect(model.metrics().feedForward?.cache?.coldReads).toBeGreaterThan(0);
      return tokens;
    };
    const expected = await generate(losingDevices());
    let isDue = true;
    const devices = losingDevices((at, { numRuns }) => {
      if (at !== moment || numRuns < 4 || !isDue) return false;
      isDue = false;
      return true;
    });
    expect(await generate(devices)).toEqual(expected);
    expect(devices.numCreated).toBe(2);
  });
});

describe('embedding models', () => {
  const texts = [ids(20), ids(9), ids(100, 3), ids(40, 11)];

  test('give the same vectors, whichever step or read loses the device', async () => {
    const embed = async (devices: Devices): Promise<readonly Float32Array[]> => {
      await using model = await loadEmbeddingModel(encoder, {
        ...{ batchSize: 110, maxTexts: 2, createBackend: devices.createBackend },
      });
      return await model.embed(texts);
    };
    const expected = await embed(losingDevices());
    for (const moment of ['run', 'read'] as const) {
      let numLeft = 2;
      const devices = losingDevices((at, { numRuns }) => at === moment && numRuns >= 2 && numLeft-- > 0);
      expect(await embed(devices)).toEqual(expected);
      expect(devices.numCreated).toBe(3);
    }
  });

  test('reject texts that lose every device, and retry with the next ones', async () => {
    let isPoisoned = false;
    const devices = losingDevices((moment) => moment === 'run' && isPoisoned);
    await using model = await loadEmbeddingModel(encoder, { createBackend: devices.createBackend });
    const expected = await model.embed(texts);
    isPoisoned = true;
    await expect(model.embed(texts)).rejects.toThrow(DeviceLostError);
    expect(devices.numCreated).toBeLessThan(8);
    isPoisoned = false;
    expect(await model.embed(texts)).toEqual(expected);
  });
});

describe('a model file that changed since it was loaded', () => {
  test.each(['generates', 'embeds'])('is rejected when a model that %s recovers', async (kind) => {
    const file = fileOf(kind === 'embeds' ? encoder : llama);
    const devices = losingDevices();
    const { createBackend } = devices;
    const run =
      kind === 'embeds'
        ? await loadEmbeddingModel(file.source, { createBackend }).then((model) => () => model.embed([ids(9)]))
        : await load(devices, {}, file.source).then((model) => () => model.generate(ids(9), { maxTokens: 2 }).result());
    const before = file.bytes.slice();
    await run();
    file.bytes.fill(0x3c, before.length - 20_000);
    devices.lose();
    await expect(run()).rejects.toThrow(FormatError);
    await expect(run()).rejects.toThrow(/changed since the model was loaded/);
    file.bytes.set(before);
    await run();
  });
});
