/** Models on demand: where `winnow serve` finds them, under which names, and with which settings. */
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { AvailableModel, ModelCatalog, ModelEvent, ServerOptions } from '@winnow/server';
import { IoError } from '@winnow/tensor';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { hubNameOf } from '../src/models/on-demand/hub-names.js';
import { scanModels } from '../src/models/on-demand/model-folder.js';
import type { Download, HubCacheApi } from '../src/terminal/io.js';
import { createFakeEngine, type FakeEngine } from './fake-engine.js';
import { TestHost, type CliRun, type CliSetup } from './run-cli.js';

const never = new AbortController().signal;
let folder = '';

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-models-'));
  const write = (name: string, text = 'GGUF'): void => {
    mkdirSync(join(folder, name, '..'), { recursive: true });
    writeFileSync(join(folder, name), text);
  };
  write('a.gguf', 'GGUF!');
  write('a/config.json', '{}');
  write('a/model.safetensors', '123');
  write('split-00001-of-00002.gguf');
  write('split-00002-of-00002.gguf');
  write('mmproj-a.gguf');
  write('.hidden.gguf');
  write('notes.txt');
  write('owner/repo/b-q4.gguf');
  write('1/2/3/4/deep.gguf');
  symlinkSync(folder, join(folder, 'owner', 'loop'));
  symlinkSync('/nowhere', join(folder, 'gone.gguf'));
});
afterAll(() => rmSync(folder, { recursive: true }));

const repos: HubCacheApi = {
  listCachedRepos: async () => [
    { repo: 'org/a', path: '/cache/a', revisions: ['main'], sizeBytes: 5, incompleteBytes: 0 },
    { repo: 'org/half', path: '/cache/half', revisions: ['main'], sizeBytes: 5, incompleteBytes: 5 },
    { repo: 'org/none', path: '/cache/none', revisions: [], sizeBytes: 5, incompleteBytes: 0 },
  ],
  removeCachedRepo: async () => undefined,
};

interface Served extends CliRun {
  readonly fake: FakeEngine;
  readonly options: ServerOptions;
}

/** Runs `use` while the server is up. */
async function serve(
  argv: readonly string[],
  use: (options: ServerOptions & { readonly catalog: ModelCatalog }) => Promise<void> = async () => {},
  setup: CliSetup = {},
): Promise<Served> {
  const fake = createFakeEngine();
  let created: ServerOptions = {};
  const host = new TestHost(fake.api, {
    ...setup,
    server: {
      createServer: async (options) => {
        created = options;
        return {
          listen: async () => 'http://127.0.0.1:8080',
          close: async () => {},
          openApi: () => ({}),
          [Symbol.asyncDispose]: async () => {},
        };
      },
    },
  });
  const run = host.run(['serve', ...argv]);
  await Promise.race([host.untilShown('listening on'), run]);
  if (created.catalog !== undefined) await use({ ...created, catalog: created.catalog });
  host.interrupt();
  return { fake, options: created, ...(await run) };
}

async function load(catalog: ModelCatalog, name: string, kind: 'generative' | 'embedding' = 'generative') {
  const found = (await catalog.find(name)) as AvailableModel;
  const prepared = await found.prepare(kind, { signal: never });
  return prepared && { memoryBytes: prepared.memoryBytes, ...(await prepared.load({ signal: never })) };
}

describe('a folder', () => {
  test('holds GGUF files and folders of models, by their path without .gguf', async () => {
    const found = [...(await scanModels(folder)).values()];
    expect(found.map(({ id, aliases, sizeBytes }) => [id, aliases, sizeBytes])).toEqual([
      ['a', [], 3],
      ['owner/repo/b-q4', ['owner/repo/b-q4.gguf'], 4],
      ['a.gguf', ['a.gguf'], 5],
      ['split', ['split-00001-of-00002.gguf'], 4],
    ]);
  });

  test('is looked at again for new names, and no name leads out of it', async () => {
    writeFileSync(join(folder, '..', 'outside.gguf'), 'GGUF');
    await serve(['--models-dir', folder], async ({ catalog, models }) => {
      expect(models).toEqual([]);
      for (const name of [
        '../outside',
        '../outside.gguf',
        `${folder}/a.gguf`,
        'owner/../a',
        'owner/loop/a',
        'org/a',
        '',
      ]) {
        expect(await catalog.find(name)).toBeUndefined();
      }
      expect(await catalog.find('new')).toBeUndefined();
      writeFileSync(join(folder, 'new.gguf'), 'GGUF');
      const found = await Promise.all(['new', 'new.gguf'].map((name) => catalog.find(name)));
      expect(found.map((each) => each?.id)).toEqual(['new', 'new']);
    });
    rmSync(join(folder, 'new.gguf'));
    rmSync(join(folder, '..', 'outside.gguf'));
  });

  test('that is none is rejected', async () => {
    const { code, stderr } = await serve(['--models-dir', join(folder, 'a.gguf')]);
    expect([code, stderr]).toEqual([2, expect.stringContaining('--models-dir: expected a folder')]);
    expect((await serve(['--unload-after', '5'])).stderr).toContain('--unload-after: requires --models-dir');
  });

  test('has no draft model, since its models have different vocabularies', async () => {
    const { code, stderr } = await serve(['--models-dir', folder, '--speculative', 'draft=small.gguf']);
    expect([code, stderr]).toEqual([
      2,
      expect.stringContaining('--speculative: expected off, lookup, self=POLICY or auto'),
    ]);
  });
});

describe('the hub', () => {
  test.each([
    ['org/a', 'org/a'],
    ['hf.co/org/a:Q4_K_M', 'org/a:Q4_K_M'],
    ['hf:org/a', 'org/a'],
    ['huggingface.co/org/a.b-c', 'org/a.b-c'],
  ])('%s is %s', (name, id) => {
    expect(hubNameOf(name)).toBe(id);
  });

  test.each([
    'a',
    'org/a/b',
    'org/a@main',
    'org/a:b/c',
    'org/..',
    '../a',
    '/org/a',
    'org/a:',
    'https://x/y',
    'org/a b',
  ])('%s is no name', (name) => expect(hubNameOf(name)).toBeUndefined());

  test('its models are downloaded when they are asked for; what is not there is unknown', async () => {
    const asked: unknown[] = [];
    const download: Download = async (request) => {
      asked.push(request);
      if (request.repo === 'org/no')
        throw Object.assign(new IoError({ source: 'org/no', message: 'no' }), { reason: 'not-found' });
      return join(folder, 'a.gguf');
    };
    const setup = { download, hubCache: repos };
    const { fake, stderr } = await serve(
      ['--hub'],
      async ({ catalog }) => {
        expect((await catalog.list()).map(({ id, sizeBytes }) => [id, sizeBytes])).toEqual([['org/a', 5]]);
        expect(await load(catalog, 'hf.co/org/b:q8_0')).toMatchObject({ kind: 'generative', memoryBytes: 1230 });
        expect(await load(catalog, 'org/no')).toBeUndefined();
        expect(await catalog.find('a')).toBeUndefined();
      },
      setup,
    );
    expect(asked).toEqual([
      { repo: 'org/b', revision: undefined, file: 'q8_0' },
      { repo: 'org/no', revision: undefined, file: undefined },
    ]);
    expect(fake.loads.map(({ location }) => location)).toEqual([join(folder, 'a.gguf'), join(folder, 'a.gguf')]);
    expect(stderr).toContain('no');
  });

  test('without --hub no name of it is known', async () => {
    await serve(['--models-dir', folder], async ({ catalog }) => expect(await catalog.find('org/a')).toBeUndefined());
  });
});

/** A file with settings. */
const written = (settings: unknown): string => {
  const path = join(folder, 'models.json');
  writeFileSync(path, typeof settings === 'string' ? settings : JSON.stringify(settings));
  return path;
};

describe('settings', () => {
  test('of a model override the defaults, and those the flags', async () => {
    const path = written({
      defaults: { kvCache: { dtype: 'q8_0', offload: { memory: '1MB' } }, maxSessions: 2, memory: '2GB' },
      models: {
        a: {
          aliases: ['gpt-4o-mini'],
          context: 512,
          attention: 'decode=sparq:topk=64',
          unloadAfter: 60,
          kvCache: { prefixSharing: false, eviction: { firstTokens: 8 }, offload: { folder: '/kv' } },
          memory: { warm: 'q8_0' },
          sparsity: { calibration: 'a.sparse', verify: true },
          native: false,
          speculative: 'lookup',
        },
        demo: {
          model: join(folder, 'a.gguf'),
          lora: { adapters: [{ source: 'x.gguf' }, { source: 'y.gguf', scale: 0.5 }], mode: 'merge' },
          kvCache: { dtype: { keys: 'q8_0', values: 'q4_0' }, eviction: 'oldest' },
          memory: 1e8,
          threads: '1',
          maxSessions: 1,
        },
      },
    });
    const argv = ['--models-dir', folder, '--models-file', path, '-c', '256', '-t', '2', '--max-loaded-models', '3'];
    const { fake, options } = await serve([...argv, '--unload-after', '9', '--memory', '1GB'], async ({ catalog }) => {
      expect(await catalog.find('gpt-4o-mini')).toMatchObject({ id: 'a', unloadAfterMs: 60_000, maxSessions: 2 });
      expect((await catalog.list()).map(({ id }) => id).slice(0, 2)).toEqual(['demo', 'a']);
      await load(catalog, 'gpt-4o-mini');
      await load(catalog, 'demo');
    });
    expect(options).toMatchObject({ maxLoadedModels: 3, unloadAfterMs: 9000, memoryBytes: 1e9 });
    expect(fake.loads.map((each) => each.options)).toMatchObject(
      [0, 0, 1, 1].map((model) =>
        model === 0
          ? {
              ...{ context: 512, threads: 2, maxSessions: 2, attention: { decode: { kind: 'sparq' } } },
              speculative: 'lookup',
              kvCache: {
                ...{ dtype: 'q8_0', prefixSharing: false, whenFull: 'wait' },
                ...{ eviction: { firstTokens: 8 }, offload: { memory: 1e6, folder: '/kv' } },
              },
              memory: { budget: 2e9, warm: 'q8_0' },
              sparsity: { calibration: 'a.sparse', verify: true },
              native: false,
            }
          : {
              context: 256,
              threads: 1,
              maxSessions: 1,
              lora: { adapters: [{ source: 'x.gguf' }, { source: 'y.gguf', scale: 0.5 }], mode: 'merge' },
              kvCache: { dtype: { keys: 'q8_0', values: 'q4_0' }, eviction: 'oldest' },
              memory: { budget: 1e8 },
            },
      ),
    );
  });
});

describe('wrong settings', () => {
  test.each([
    ['{', 'cannot be read'],
    [[], 'the file: expected an object, got []'],
    [{ model: {} }, 'unknown option "model"; did you mean "models"?'],
    [{ models: { a: { contxt: 1 } } }, 'models.a: unknown option "contxt"; did you mean "context"?'],
    [{ models: { a: { kvDtype: 'q8_0' } } }, 'models.a: unknown option "kvDtype"; did you mean "kvCache.dtype"?'],
    [{ models: { a: { kvCache: { dtyp: 'q8_0' } } } }, '"kvCache.dtyp"; did you mean "kvCache.dtype"?'],
    [
      { models: { a: { kvCache: { dtype: { key: 'q8_0' } } } } },
      '"kvCache.dtype.key"; did you mean "kvCache.dtype.keys"?',
    ],
    [
      { models: { a: { lora: { adapters: [{ scal: 1 }] } } } },
      '"lora.adapters[0].scal"; did you mean "lora.adapters[0].scale"?',
    ],
    [{ defaults: { unloadAfter: 1 } }, 'defaults: unknown option "unloadAfter"'],
    [{ defaults: { maxTokens: 1 } }, 'defaults: unknown option "maxTokens"'],
    [{ models: { a: { kvCache: 'q8_0' } } }, 'models.a.kvCache: expected an object, got "q8_0"'],
    [{ models: { a: { context: {} } } }, 'models.a.context: expected a string or a number, got {}'],
    [{ models: { a: { lora: { adapters: ['x'] } } } }, 'models.a.lora.adapters: expected a list of { "source": FILE'],
    [{ models: { a: { context: -1 } } }, "models.a.context: expected an integer of at least 0, got '-1'"],
    [{ models: { a: { context: [] } } }, 'models.a.context: expected a string or a number, got []'],
    [{ models: { a: { kvCache: { dtype: 'q9' } } } }, 'models.a.kvCache.dtype: expected'],
    [{ models: { a: { sparsity: { verify: 1 } } } }, 'models.a.sparsity.verify: expected true or false, got 1'],
    [{ models: { a: { attention: 'sparkle' } } }, 'models.a.attention: '],
    [{ models: { a: { speculative: 'draft=b' } } }, 'models.a.speculative: expected off, lookup'],
    [{ defaults: { speculative: 'draft=b' } }, '--speculative: expected off, lookup'],
    [{ models: { a: { aliases: 'x' } } }, 'models.a.aliases: expected a list of names'],
    [{ models: { a: { unloadAfter: -1 } } }, 'models.a.unloadAfter: expected a number of seconds'],
    [{ models: { a: { aliases: ['b'] }, b: {} } }, 'models.a.aliases: expected names of one model, got "b"'],
    [{ models: { a: { model: 5 } } }, 'models.a.model: expected a text, got 5'],
  ])('%j is rejected with its place', async (settings, message) => {
    const { code, stderr } = await serve(['--models-dir', folder, '--models-file', written(settings)]);
    expect([code, stderr]).toEqual([2, expect.stringContaining(message)]);
  });

  test('without a folder every model has to be named', async () => {
    const { stderr } = await serve(['--models-file', written({ models: { a: {} } })]);
    expect(stderr).toContain('models.a.model: expected a model');
  });
});

test('the log tells what is loaded and unloaded', async () => {
  const events: ModelEvent[] = [
    { event: 'loaded', model: 'a', kind: 'generative', durationMs: 1500, memoryBytes: 2e9 },
    { event: 'unloaded', model: 'a', kind: 'generative', reason: 'memory', memoryBytes: 2e9 },
    { event: 'failed', model: 'b', kind: 'generative', durationMs: 1, error: new Error('broken') },
  ];
  const log = async ({ onModelEvent }: ServerOptions): Promise<void> =>
    events.forEach((event) => onModelEvent?.(event));
  const { stderr } = await serve(['--models-dir', folder], log);
  expect(stderr).toContain(
    'winnow: loaded a in 1.500 s: 2 GB\nwinnow: unloaded a (for another model): 2 GB\nwinnow: could not load b: broken\n',
  );
  const quiet = await serve(['--models-dir', folder, '--quiet'], log);
  expect(quiet.stderr).toBe('winnow: could not load b: broken\n');
  const json = await serve(['--models-dir', folder, '--log-format', 'json'], log);
  const lines = json.stderr.split('\n').filter((line) => line.startsWith('{'));
  expect(lines.map((line) => JSON.parse(line) as object)).toMatchObject([
    { event: 'model_loaded', model: 'a', duration_ms: 1500, memory_bytes: 2e9 },
    { event: 'model_unloaded', reason: 'memory' },
    { event: 'model_failed', error: 'broken' },
  ]);
});
