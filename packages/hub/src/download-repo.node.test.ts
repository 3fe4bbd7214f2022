import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, readlink, rm, stat, symlink, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { scanCacheDir } from '@huggingface/hub';
import { CapacityError, IoError } from '@winnow/tensor';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { FakeHub, gitSha1, sha256 } from '../test/fake-hub.js';
import { downloadRepo, HubError, type DownloadProgress, type DownloadRepoOptions } from './index.node.js';

const commitA = 'a'.repeat(40);
const commitB = 'b'.repeat(40);
const text = (content: string): Uint8Array => new TextEncoder().encode(content);
const noise = (length: number, seed: number): Uint8Array =>
  Uint8Array.from({ length }, (_, i) => Math.imul(i + seed, 0x9e3779b1) >>> 24);

const files: Record<string, Uint8Array> = {
  'config.json': text('{"model_type":"llama"}'),
  'tokenizer.json': text('{}'),
  'empty.txt': new Uint8Array(0),
  '1_Pooling/config.json': text('{"pooling_mode_mean_tokens":true}'),
  'model.safetensors': noise(1_000_000, 1),
  'pytorch_model.bin': noise(5000, 2),
  'onnx/model.onnx': noise(5000, 3),
  'README.md': text('# model'),
};
const weights = files['model.safetensors'] as Uint8Array;
const selected = ['1_Pooling/config.json', 'config.json', 'empty.txt', 'model.safetensors', 'tokenizer.json'];

let hub: FakeHub;
let folder: string;
let cacheDir: string;
let repoPath: string;
const get = (more: Partial<DownloadRepoOptions> = {}): ReturnType<typeof downloadRepo> =>
  downloadRepo({ repo: 'org/model', endpoint: hub.endpoint, cacheDir, offline: false, ...more });
const failure = async (more: Partial<DownloadRepoOptions> = {}): Promise<HubError> => {
  const error = await get(more).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(HubError);
  expect(error).toBeInstanceOf(IoError);
  return error as HubError;
};
const contentOf = async (path: string): Promise<Record<string, string>> => {
  const names = (await readdir(path, { recursive: true, withFileTypes: true })).filter((entry) => !entry.isDirectory());
  const pairs = names.map(async (entry) => {
    const full = join(entry.parentPath, entry.name);
    return [full.slice(path.length + 1), sha256(await readFile(full))] as const;
  });
  return Object.fromEntries((await Promise.all(pairs)).sort());
};
const expectedContent = (names: readonly string[]): Record<string, string> =>
  Object.fromEntries(names.map((name) => [name, sha256(files[name] as Uint8Array)]));
const blob = join('blobs', sha256(weights));

beforeEach(async () => {
  for (const name of ['HF_HUB_OFFLINE', 'HF_ENDPOINT', 'HF_TOKEN', 'HF_HUB_CACHE', 'HF_HOME'])
    vi.stubEnv(name, undefined);
  hub = await FakeHub.start();
  hub.repos['org/model'] = {
    commits: { [commitA]: files },
    refs: { main: commitA, 'v1.0': commitA, 'refs/pr/1': commitA },
  };
  folder = await mkdtemp(join(tmpdir(), 'winnow-hub-'));
  cacheDir = join(folder, 'cache');
  repoPath = join(cacheDir, 'models--org--model');
});

afterEach(async () => {
  vi.unstubAllEnvs();
  await hub.stop();
  await rm(folder, { recursive: true, force: true });
});

describe('downloadRepo', () => {
  it('downloads the files of a safetensors model into the layout of the Hugging Face cache', async () => {
    const result = await get();
    expect(result).toEqual({
      path: join(repoPath, 'snapshots', commitA),
      commit: commitA,
      files: selected,
      ggufFile: undefined,
    });
    expect(await contentOf(result.path)).toEqual(expectedContent(selected));
    expect(await readFile(join(repoPath, 'refs', 'main'), 'utf8')).toBe(commitA);
    expect(await readlink(join(result.path, 'model.safetensors'))).toBe(join('..', '..', blob));
    expect(await readlink(join(result.path, '1_Pooling', 'config.json'))).toBe(
      join('..', '..', '..', 'blobs', gitSha1(files['1_Pooling/config.json'] as Uint8Array)),
    );
    expect((await readdir(join(repoPath, 'blobs'))).filter((name) => name.endsWith('.incomplete'))).toEqual([]);
    const scan = await scanCacheDir(cacheDir);
    expect(scan.warnings).toEqual([]);
    expect(scan.repos[0]).toMatchObject({ id: { name: 'org/model', type: 'model' } });
    expect(scan.repos[0]?.revisions[0]).toMatchObject({ commitOid: commitA, refs: ['main'] });
  });

  it('transfers nothing a second time, and nothing at all for a known commit', async () => {
    await get();
    hub.requests = [];
    await get();
    expect([hub.numRequests('info'), hub.numRequests('tree'), hub.numRequests('resolve')]).toEqual([1, 1, 0]);
    hub.requests = [];
    await get({ revision: commitA });
    expect(hub.requests).toEqual([]);
  });

  it('shares blobs between revisions and moves the branch when all is there', async () => {
    await get();
    const changed = { ...files, 'config.json': text('{"model_type":"mistral"}') };
    hub.repos['org/model'] = { commits: { [commitA]: files, [commitB]: changed }, refs: { main: commitB } };
    hub.requests = [];
    const { path, commit } = await get();
    expect(commit).toBe(commitB);
    expect(hub.requests.filter(({ kind }) => kind === 'resolve').map((entry) => entry.path)).toEqual(['config.json']);
    expect(await readFile(join(path, 'config.json'), 'utf8')).toBe('{"model_type":"mistral"}');
    expect(await readFile(join(repoPath, 'snapshots', commitA, 'config.json'), 'utf8')).toBe('{"model_type":"llama"}');
  });

  it('follows tags, nested refs and long lists', async () => {
    hub.pageSize = 2;
    for (const revision of ['v1.0', 'refs/pr/1', commitA]) {
      expect((await get({ revision })).files).toEqual(selected);
    }
    expect(await readFile(join(repoPath, 'refs', 'refs', 'pr', '1'), 'utf8')).toBe(commitA);
  });

  it('takes patterns, and names with characters that URLs use', async () => {
    const odd = 'sub/a b#c?d%20é.txt';
    hub.repos['org/model'] = { commits: { [commitA]: { ...files, [odd]: text('odd') } }, refs: { main: commitA } };
    expect((await get({ files: ['*.txt', 'README.md'], ignore: ['empty*'] })).files).toEqual(['README.md', odd]);
    expect(await readFile(join(repoPath, 'snapshots', commitA, odd), 'utf8')).toBe('odd');
  });

  it('chooses one GGUF model', async () => {
    const parts = ['m-F16-00001-of-00002.gguf', 'm-F16-00002-of-00002.gguf'];
    const names = ['m-Q4_K_M.gguf', 'm-Q8_0.gguf', ...parts];
    const commit = Object.fromEntries(names.map((name, i) => [name, noise(100 + i, i)]));
    hub.repos['org/model'] = { commits: { [commitA]: commit }, refs: { main: commitA } };
    const result = await get({ gguf: 'q4_k_m' });
    expect(result.files).toEqual(['m-Q4_K_M.gguf']);
    expect(result.ggufFile).toBe(join(result.path, 'm-Q4_K_M.gguf'));
    expect(await get({ gguf: '*f16*' })).toMatchObject({
      files: parts,
      ggufFile: join(result.path, parts[0] as string),
    });
    await expect(get()).rejects.toThrow(/a choice of one of/);
    await expect(get({ gguf: 'q' })).rejects.toThrow(/m-Q4_K_M.gguf, m-Q8_0.gguf/);
    await expect(get({ gguf: 'q2_k' })).rejects.toThrow(/a match among/);
  });

  it('reports progress that only grows and ends at the whole', async () => {
    const events: DownloadProgress[] = [];
    await get({ onProgress: (event) => events.push(event) });
    const total = selected.reduce((sum, name) => sum + (files[name] as Uint8Array).length, 0);
    expect(events.at(-1)).toMatchObject({ allLoadedBytes: total, allTotalBytes: total });
    events.reduce((previous, event) => {
      expect(event.allLoadedBytes).toBeGreaterThanOrEqual(previous);
      return event.allLoadedBytes;
    }, 0);
    const ofWeights = events.filter(({ file }) => file === 'model.safetensors').map(({ loadedBytes }) => loadedBytes);
    expect(ofWeights.length).toBeGreaterThan(3);
    expect([ofWeights[0], ofWeights.at(-1)]).toEqual([0, weights.length]);
  });

  it('sends the token to the hub and not to the storage host', async () => {
    hub.repos['org/model'] = {
      ...(hub.repos['org/model'] as object),
      commits: { [commitA]: files },
      refs: { main: commitA },
      token: 'secret',
    };
    await get({ accessToken: 'secret' });
    for (const { kind, authorization } of hub.requests) {
      expect([kind, authorization]).toEqual([kind, kind === 'storage' ? undefined : 'Bearer secret']);
    }
    expect(hub.numRequests('storage')).toBe(1);
  });

  it('keeps a token of the environment from an endpoint that was passed in', async () => {
    vi.stubEnv('HF_TOKEN', 'hf_secret');
    await get();
    expect(hub.requests.every(({ authorization }) => authorization === undefined)).toBe(true);
  });
});

describe('an interrupted download', () => {
  it('goes on within the call when the connection is cut', async () => {
    hub.cuts['model.safetensors'] = [300_000, 200_000];
    const { path } = await get();
    expect(sha256(await readFile(join(path, 'model.safetensors')))).toBe(sha256(weights));
    expect(hub.requests.filter(({ kind }) => kind === 'storage').map(({ range }) => range)).toEqual([
      undefined,
      'bytes=300000-999999',
      'bytes=500000-999999',
    ]);
  });

  it('goes on in the next call from what is there', async () => {
    hub.cuts['model.safetensors'] = [100_000, 0];
    const error = await failure();
    expect(error).toMatchObject({ reason: 'network', files: ['model.safetensors'] });
    expect(error.message).toMatch(/after 100000 of 1000000 bytes/);
    expect((await stat(join(repoPath, `${blob}.incomplete`))).size).toBe(100_000);
    await expect(stat(join(repoPath, 'refs', 'main'))).rejects.toThrow(/ENOENT/);
    expect(await failure({ offline: true })).toMatchObject({ reason: 'not-cached' });

    hub.requests = [];
    const events: number[] = [];
    const { path } = await get({
      onProgress: ({ file, loadedBytes }) => file === 'model.safetensors' && events.push(loadedBytes),
    });
    expect(hub.requests.find(({ kind }) => kind === 'storage')?.range).toBe('bytes=100000-999999');
    expect(events[0]).toBe(100_000);
    expect(await contentOf(path)).toEqual(expectedContent(selected));
  });

  it('gives up a connection that is cut again and again, keeping what arrived', async () => {
    hub.cuts['model.safetensors'] = Array.from({ length: 50 }, () => 1000);
    expect(await failure()).toMatchObject({ reason: 'network' });
    expect((await stat(join(repoPath, `${blob}.incomplete`))).size).toBe(6000);
  });

  it('copes with a server that ignores ranges', async () => {
    hub.cuts['model.safetensors'] = [300_000];
    hub.ignoresRange = true;
    const { path } = await get();
    expect(sha256(await readFile(join(path, 'model.safetensors')))).toBe(sha256(weights));
  });

  it.each([
    ['wrong bytes', noise(5000, 99)],
    ['the right length of wrong bytes', noise(weights.length, 99)],
    ['more bytes than the file has', noise(weights.length + 1, 99)],
  ])('starts again when an earlier run left %s', async (_, left) => {
    await mkdir(join(repoPath, 'blobs'), { recursive: true });
    await writeFile(join(repoPath, `${blob}.incomplete`), left);
    const { path } = await get();
    expect(sha256(await readFile(join(path, 'model.safetensors')))).toBe(sha256(weights));
  });

  it('replaces a blob that another tool left cut', async () => {
    const { path } = await get();
    await truncate(join(repoPath, blob), 1234);
    await get();
    expect(sha256(await readFile(join(path, 'model.safetensors')))).toBe(sha256(weights));
  });

  it('stops on the signal, with its reason, and can be taken up', async () => {
    const controller = new AbortController();
    const reason = new Error('enough');
    const onProgress = ({ file, loadedBytes }: DownloadProgress): void => {
      if (file === 'model.safetensors' && loadedBytes > 0) controller.abort(reason);
    };
    await expect(get({ signal: controller.signal, onProgress })).rejects.toBe(reason);
    await expect(get({ signal: controller.signal })).rejects.toBe(reason);
    expect((await stat(join(repoPath, `${blob}.incomplete`))).size).toBeGreaterThan(0);
    hub.requests = [];
    await get();
    expect(hub.requests.find(({ kind }) => kind === 'storage')?.range).toMatch(/^bytes=[1-9]/);
  });

  it('stops on the signal while the hub does not answer', async () => {
    const controller = new AbortController();
    hub.intercept = () => {
      controller.abort();
      return true; // and never answers
    };
    await expect(get({ signal: controller.signal })).rejects.toThrow(/abort/i);
  });

  it('lets two calls for the same repository run at once', async () => {
    const [first, second] = await Promise.all([get(), get()]);
    expect(first).toEqual(second);
    expect(await contentOf(first.path)).toEqual(expectedContent(selected));
  });
});

describe('content that is not what was announced', () => {
  it.each([
    ['other bytes of the same length', noise(weights.length, 9)],
    ['more bytes', noise(weights.length + 10, 1)],
  ])('%s are refused and leave no blob', async (_, wrong) => {
    hub.wrong['model.safetensors'] = wrong;
    expect(await failure()).toMatchObject({ reason: 'corrupt', files: ['model.safetensors'] });
    expect(await readdir(join(repoPath, 'blobs'))).not.toContain(sha256(weights));
    delete hub.wrong['model.safetensors'];
    const { path } = await get();
    expect(await contentOf(path)).toEqual(expectedContent(selected));
  });

  it('is noticed in small files too', async () => {
    hub.wrong['config.json'] = text('{"model_type":"lIama"}');
    expect(await failure()).toMatchObject({ reason: 'corrupt', files: ['config.json'] });
  });

  it('is noticed when the size behind a range has changed', async () => {
    hub.cuts['model.safetensors'] = [1000, 0];
    await failure();
    hub.wrong['model.safetensors'] = noise(999_999, 1);
    expect(await failure()).toMatchObject({ reason: 'corrupt', message: expect.stringMatching(/has 999999/) });
  });
});

describe('offline', () => {
  it('resolves from the cache without a request', async () => {
    const online = await get();
    hub.requests = [];
    expect(await get({ offline: true })).toEqual(online);
    vi.stubEnv('HF_HUB_OFFLINE', '1');
    expect(await downloadRepo({ repo: 'org/model', endpoint: hub.endpoint, cacheDir })).toEqual(online);
    expect(hub.requests).toEqual([]);
  });

  it('says what is missing', async () => {
    expect(await failure({ offline: true })).toMatchObject({ reason: 'not-cached', files: [] });
    await get({ files: ['config.json'] });
    expect((await get({ offline: true, files: ['config.json'] })).files).toEqual(['config.json']);
    const error = await failure({ offline: true });
    expect(error).toMatchObject({ reason: 'not-cached', files: selected.filter((name) => name !== 'config.json') });
    expect(await failure({ offline: true, revision: 'v1.0' })).toMatchObject({ reason: 'not-cached' });
    expect(await failure({ offline: true, revision: commitB })).toMatchObject({ reason: 'not-cached' });
  });

  it('does not take a link without content, or a short blob, for a file', async () => {
    await get();
    await truncate(join(repoPath, blob), 10);
    expect(await failure({ offline: true })).toMatchObject({ files: ['model.safetensors'] });
    await rm(join(repoPath, blob));
    expect(await failure({ offline: true })).toMatchObject({ files: ['model.safetensors'] });
  });

  it('uses a cache that another tool made', async () => {
    await get();
    await rm(join(repoPath, '.winnow'), { recursive: true });
    expect([...(await get({ offline: true })).files].sort()).toEqual(selected);
  });
});

describe('refusals of the hub', () => {
  it.each([
    ['a repository that is not there', { repo: 'org/none' }, { reason: 'not-found', statusCode: 401 }],
    ['the same with a token', { repo: 'org/none', accessToken: 'x' }, { reason: 'not-found', statusCode: 404 }],
    [
      'a revision that is not there',
      { revision: 'v9' },
      { reason: 'not-found', message: expect.stringMatching(/revision/) },
    ],
    ['a wrong token', { repo: 'org/private', accessToken: 'wrong' }, { reason: 'unauthorized', statusCode: 401 }],
    ['a gated repository', { repo: 'org/gated' }, { reason: 'gated', statusCode: 403 }],
  ])('%s', async (_, options, expected) => {
    hub.repos['org/private'] = { commits: {}, refs: {}, token: 'right' };
    hub.repos['org/gated'] = { commits: { [commitA]: files }, refs: { main: commitA }, gated: true };
    const error = await failure(options);
    expect(error).toMatchObject(expected);
    expect(error.message).not.toMatch(/wrong"|Bearer/);
  });

  it('a file that vanished between list and download', async () => {
    hub.editTree = (entries) => [...entries, { type: 'file', path: 'vocab.txt', size: 1, oid: 'c'.repeat(40) }];
    expect(await failure()).toMatchObject({ reason: 'not-found', message: expect.stringMatching(/no such file/) });
  });

  it.each([429, 500, 503])('status %d', async (status) => {
    hub.intercept = (_, response) => {
      response.writeHead(status).end('busy');
      return true;
    };
    expect(await failure()).toMatchObject({ reason: 'server', statusCode: status });
  });

  it.each([
    ['no JSON', '<html>'],
    ['another value', '[]'],
    ['a commit that is a path', '{"sha":"../../../../etc","id":"org/model"}'],
  ])('an answer that is %s', async (_, body) => {
    hub.intercept = (_request, response) => {
      response.setHeader('content-type', 'application/json').end(body);
      return true;
    };
    expect(await failure()).toMatchObject({ reason: 'server' });
    await expect(stat(cacheDir)).rejects.toThrow(/ENOENT/);
  });

  it.each([
    ['an object', () => ({})],
    [
      'a name of a blob that is a path',
      (entries: object[]) => entries.map((entry) => ({ ...entry, lfs: undefined, oid: '../../x' })),
    ],
    ['negative sizes', (entries: object[]) => entries.map((entry) => ({ ...entry, lfs: undefined, size: -1 }))],
  ])('a list of files with %s', async (_, editTree) => {
    hub.editTree = editTree;
    expect(await failure()).toMatchObject({ reason: 'server' });
  });

  it('never writes outside of the cache', async () => {
    const evil = ['../evil.json', '/evil.json', '..\\evil.json', 'a/../../evil.json', 'C:evil.json', '.\u0000.json'];
    hub.editTree = (entries) => [
      ...entries,
      ...evil.map((path) => ({ type: 'file', path, size: 2, oid: gitSha1(text('{}')) })),
    ];
    expect((await get()).files).toEqual(selected);
    expect((await readdir(folder, { recursive: true })).filter((name) => name.includes('evil'))).toEqual([]);
  });

  it('a list without end', async () => {
    hub.intercept = (request, response) => {
      if (!(request.url ?? '').includes('/tree/')) return false;
      response
        .setHeader('link', `<${hub.endpoint}${request.url}>; rel="next"`)
        .setHeader('content-type', 'application/json');
      response.end('[]');
      return true;
    };
    expect(await failure()).toMatchObject({ reason: 'server', message: expect.stringMatching(/does not end/) });
  });

  it('a hub that cannot be reached', async () => {
    const gone = await FakeHub.start();
    const { endpoint } = gone;
    await gone.stop();
    expect(await failure({ endpoint })).toMatchObject({
      reason: 'network',
      message: expect.stringMatching(/offline: true/),
    });
  });

  it.each(['', 'a/b/c', '../x', 'org/..', 'org/a--b', 'org/a b', './x', 'org/x.git'])('the name %j', async (repo) => {
    await expect(get({ repo })).rejects.toMatchObject({ name: 'ArgumentError', argument: 'repo' });
  });

  it.each(['', '../main', 'a//b', '/main', 'a\\b'])('the revision %j', async (revision) => {
    await expect(get({ revision })).rejects.toMatchObject({ name: 'ArgumentError', argument: 'revision' });
  });
});

describe('a disk that refuses', () => {
  it('a cache folder that is a file', async () => {
    await writeFile(cacheDir, 'x');
    expect(await failure()).toMatchObject({ reason: 'disk' });
    expect(await readFile(cacheDir, 'utf8')).toBe('x');
  });

  it.skipIf(process.getuid?.() === 0)('a folder without write permission (needs a user other than root)', async () => {
    await mkdir(cacheDir, { mode: 0o555 });
    expect(await failure()).toMatchObject({ reason: 'disk' });
  });

  it.skipIf(!existsSync('/proc/self') || !existsSync('/sys/kernel'))(
    'file systems that take no folders (needs /proc and /sys)',
    async () => {
      expect(await failure({ cacheDir: '/sys/winnow/a' })).toMatchObject({ reason: 'disk' });
      expect(await failure({ cacheDir: '/proc/winnow/a' })).toMatchObject({ reason: 'disk' });
    },
  );

  it.skipIf(process.platform !== 'linux')(
    'a full disk leaves nothing that counts as complete (needs /dev/full)',
    async () => {
      await mkdir(join(repoPath, 'blobs'), { recursive: true });
      await symlink('/dev/full', join(repoPath, `${blob}.incomplete`));
      expect(await failure()).toMatchObject({
        reason: 'disk',
        message: expect.stringMatching(/no space left.*ENOSPC/),
      });
      expect(await readdir(join(repoPath, 'blobs'))).not.toContain(sha256(weights));
      expect(await failure({ offline: true })).toMatchObject({ reason: 'not-cached' });
      await rm(join(repoPath, `${blob}.incomplete`));
      expect(await contentOf((await get()).path)).toEqual(expectedContent(selected));
    },
  );

  it('a blob folder that is in the way of a link', async () => {
    await mkdir(join(repoPath, 'snapshots', commitA, 'config.json', 'x'), { recursive: true });
    expect(await failure()).toMatchObject({ reason: 'disk' });
  });

  it('too little space for what is missing, before anything is transferred', async () => {
    const huge = { oid: 'd'.repeat(64), size: 2 ** 52, pointerSize: 1 };
    hub.editTree = (entries) =>
      entries.map((entry) => (entry['path'] === 'model.safetensors' ? { ...entry, lfs: huge } : entry));
    await expect(get()).rejects.toBeInstanceOf(CapacityError);
    expect(hub.numRequests('resolve')).toBe(0);
  });
});
