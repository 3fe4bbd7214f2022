/** Models on demand over HTTP, through the clients of OpenAI and Ollama. */
import { demoModelUrl } from '@winnow/demo-model';
import { loadModel, type Model } from '@winnow/engine';
import { Ollama } from 'ollama';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import type {
  AvailableModel,
  GenerativeModel,
  LoadedModel,
  ModelCatalog,
  ModelEvent,
  ServerOptions,
  VectorModel,
} from '../src/index.js';
import { postJson, startServer, until, type DemoServer } from './demo-server.js';
import { endless, scripted, speechless } from './fake-models.js';

let model: Model;
const open: DemoServer[] = [];

beforeAll(async () => {
  model = await loadModel(demoModelUrl, { threads: 1, maxSessions: 4, kvCache: { whenFull: 'wait', capacity: 4096 } });
});

afterEach(async () => {
  vi.useRealTimers();
  for (const demo of open.splice(0)) await demo.close();
});

afterAll(async () => {
  await model?.dispose();
});

const ones = {
  ...{ name: 'ones', backend: 'none', contextSize: 8, dimensions: 2 },
  embedTexts: async (texts: readonly unknown[]) => texts.map(() => ({ vector: Float32Array.of(1, 1), numTokens: 1 })),
  [Symbol.asyncDispose]: async () => {},
} as unknown as VectorModel & AsyncDisposable;

/** The demo model under several names; `vectors` embeds, `broken` fails. */
class DemoCatalog implements ModelCatalog {
  readonly loads: string[] = [];
  readonly #served: () => GenerativeModel;

  constructor(served: () => GenerativeModel = () => endless(model)) {
    this.#served = served;
  }

  async list(): Promise<AvailableModel[]> {
    return ['first', 'second', 'vectors', 'broken'].map((id) => this.#model(id));
  }

  async find(name: string): Promise<AvailableModel | undefined> {
    const id = name === 'alias' ? 'first' : name;
    return (await this.list()).find((each) => each.id === id);
  }

  #model(id: string): AvailableModel {
    return {
      ...{ id, aliases: id === 'first' ? ['alias'] : [], sizeBytes: 7, modifiedMs: 0 },
      prepare: async () => ({
        memoryBytes: 1000,
        load: async (): Promise<LoadedModel> => {
          this.loads.push(id);
          if (id === 'broken') throw new Error('a secret');
          if (id === 'vectors') return { kind: 'embedding', model: ones };
          // the real plan is larger than the memory of these tests
          const { plan: _plan, ...borrowed } = this.#served();
          return { kind: 'generative', model: { ...borrowed, [Symbol.asyncDispose]: async () => {} } };
        },
      }),
    };
  }
}

async function start(options: ServerOptions): Promise<DemoServer & { events: ModelEvent[] }> {
  const events: ModelEvent[] = [];
  const demo = await startServer({ onModelEvent: (event) => events.push(event), ...options });
  open.push(demo);
  return { ...demo, events };
}

const body = { model: 'first', prompt: 'The sea', temperature: 0, max_tokens: 3 };

test('models are listed before they are loaded, and loaded once when they are asked for', async () => {
  const catalog = new DemoCatalog();
  const { client, url } = await start({ catalog });
  const states = async (): Promise<unknown> =>
    (await client.models.list()).data.map(({ id, ...rest }) => [id, (rest as unknown as { status: object }).status]);
  expect(await states()).toEqual([
    ...[
      ['first', { value: 'unloaded' }],
      ['second', { value: 'unloaded' }],
    ],
    ...[
      ['vectors', { value: 'unloaded' }],
      ['broken', { value: 'unloaded' }],
    ],
  ]);
  const answers = await Promise.all(
    ['first', 'alias', 'first'].map((name) => client.completions.create({ ...body, model: name })),
  );
  expect(new Set(answers.map(({ choices }) => choices[0]?.text)).size).toBe(1);
  expect(answers.map((each) => each.model)).toEqual(['first', 'first', 'first']);
  expect(catalog.loads).toEqual(['first']);
  expect(await client.models.retrieve('alias')).toMatchObject({ id: 'first', status: { value: 'loaded' } });
  const { data } = await client.embeddings.create({ model: 'vectors', input: 'sea', encoding_format: 'float' });
  expect(data[0]?.embedding).toEqual([1, 1]);
  const wrong = await postJson(`${url}/v1/completions`, { prompt: 'a' });
  expect(await wrong.json()).toMatchObject({ error: { message: expect.stringContaining('first, second') as string } });
});

test.each([true, false])(
  'failed loads are typed errors, whose causes only the log tells (events: %s)',
  async (hasEvents) => {
    const catalog = new DemoCatalog();
    const errors: unknown[] = [];
    const failures: unknown[] = [];
    const onModelEvent = (event: ModelEvent): void => {
      if (event.event === 'failed') failures.push(event.error);
    };
    const onError = (error: unknown): unknown => errors.push(error);
    const demo = await startServer({ catalog, onError, ...(hasEvents ? { onModelEvent } : {}) });
    open.push(demo);
    const { url } = demo;
    const failed = await Promise.all([1, 2].map(() => postJson(`${url}/v1/completions`, { ...body, model: 'broken' })));
    for (const response of failed) {
      expect(response.status).toBe(500);
      expect(await response.json()).toMatchObject({
        error: { code: 'model_load_failed', message: expect.not.stringContaining('secret') as string },
      });
    }
    const [told, untold] = hasEvents ? [failures, errors] : [errors, failures];
    expect(new Set(told.map(String))).toEqual(new Set(['Error: a secret']));
    expect(untold).toEqual([]);
    expect((await postJson(`${url}/v1/completions`, { ...body, model: 'none' })).status).toBe(404);
  },
);

test('a model that streams stays until its answer ends, then makes room; log and metrics tell', async () => {
  const catalog = new DemoCatalog(() => scripted(model, speechless));
  const { client, url, events } = await start({ catalog, memoryBytes: 1500 });
  const stream = await client.completions.create({ ...body, stream: true });
  const reader = stream[Symbol.asyncIterator]();
  await reader.next();
  const second = client.completions.create({ ...body, model: 'second', stream: true });
  await until(() => events.some(({ model: id }) => id === 'second'));
  expect(catalog.loads).toEqual(['first']);
  stream.controller.abort(); // the client leaves
  (await second).controller.abort();
  expect(events.map(({ event, model: id }) => `${event} ${id}`)).toEqual([
    'loading first',
    'loaded first',
    'loading second',
    'unloaded first',
    'loaded second',
  ]);
  const metrics = await (await fetch(`${url}/metrics`)).text();
  expect(metrics).toContain('winnow_model_loads_total{result="loaded"} 2');
  expect(metrics).toContain('winnow_model_unloads_total{reason="memory"} 1');
  expect(metrics).toContain('winnow_models_memory_bytes 1000');
  expect(metrics).toContain('winnow_slots{model="second"} 4');
});

test("Ollama's clients see what is loaded, load and unload by keep_alive", async () => {
  vi.useFakeTimers({ toFake: ['Date'], now: Date.UTC(2026, 0, 1) });
  const { url } = await start({ catalog: new DemoCatalog() });
  const ollama = new Ollama({ host: url });
  expect((await ollama.list()).models).toMatchObject([{ name: 'first', size: 7 }, { name: 'second' }, {}, {}]);
  expect(await ollama.show({ model: 'first' })).toMatchObject({ capabilities: [], details: { family: '' } });
  expect((await ollama.ps()).models).toEqual([]);
  const load = { model: 'first:latest', prompt: '', keep_alive: '5m' } as const;
  expect(await ollama.generate(load)).toMatchObject({ done_reason: 'load' });
  const { models } = await ollama.ps();
  expect(models).toMatchObject([{ name: 'first', size: 1000, size_vram: 0, expires_at: '2026-01-01T00:05:00.000Z' }]);
  expect(await ollama.show({ model: 'alias' })).toMatchObject({ capabilities: ['completion', 'tools'] });
  expect(await ollama.generate({ ...load, keep_alive: 0 })).toMatchObject({ done_reason: 'unload' });
  await until(async () => (await ollama.ps()).models.length === 0);
  await expect(ollama.generate({ ...load, keep_alive: 'soon' })).rejects.toThrow('keep_alive');
  await ollama.generate({ model: 'second', prompt: 'a', raw: true, keep_alive: 0, options: { num_predict: 1 } });
  await until(async () => (await ollama.ps()).models.length === 0);
});

test('closing ends requests that wait for a model, and unloads the others after their answers', async () => {
  const { promise: gate, resolve: goOn } = Promise.withResolvers<void>();
  const served = scripted(model, async function* () {
    yield 'well';
    await gate;
    yield ' said';
  });
  const demo = await start({ catalog: new DemoCatalog(() => served), memoryBytes: 1500 });
  const stream = await demo.client.completions.create({ ...body, stream: true });
  const waiting = postJson(`${demo.url}/v1/completions`, { ...body, model: 'second' });
  await until(() => demo.events.some(({ model: id }) => id === 'second'));
  const closing = demo.server.close({ graceMs: 30_000 });
  expect((await waiting).status).toBe(503);
  goOn();
  let text = '';
  for await (const { choices } of stream) text += choices[0]?.text ?? '';
  expect(text).toBe('well said');
  await closing;
  expect(demo.events.at(-1)).toMatchObject({ event: 'unloaded', model: 'first', reason: 'shutdown' });
});
