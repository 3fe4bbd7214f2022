import { spawnSync } from 'node:child_process';
import { mkdir, readdir, readFile, readlink, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { partPath } from '@winnow/bytes/node';
import { scanCacheDir } from '@huggingface/hub';
import { gitSha1, sha256 } from '@winnow/test-utils';
import { describe, expect, it, vi } from 'vitest';
import {
  blob,
  cacheDir,
  commitA,
  commitB,
  contentOf,
  expectedContent,
  failure,
  files,
  get,
  hub,
  noise,
  repoPath,
  selected,
  text,
  weights,
  useHubFixture,
} from '../test/hub-fixture.js';
import { downloadRepo, type DownloadProgress } from './index.node.js';

useHubFixture();

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

  it('transfers no file twice, and makes no request for a cached commit', async () => {
    await get();
    hub.requests = [];
    await get();
    expect([hub.numRequests('info'), hub.numRequests('tree'), hub.numRequests('resolve')]).toEqual([1, 1, 0]);
    hub.requests = [];
    await get({ revision: commitA });
    expect(hub.requests).toEqual([]);
  });

  it('shares blobs between revisions, and moves the branch once it is complete', async () => {
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
});

describe('revisions and patterns', () => {
  it('follow tags, nested refs and long lists', async () => {
    hub.pageSize = 2;
    for (const revision of ['v1.0', 'refs/pr/1', commitA]) {
      expect((await get({ revision })).files).toEqual(selected);
    }
    expect(await readFile(join(repoPath, 'refs', 'refs', 'pr', '1'), 'utf8')).toBe(commitA);
  });

  it('match names with characters that URLs use', async () => {
    const odd = 'sub/a b#c?d%20é.txt';
    hub.repos['org/model'] = { commits: { [commitA]: { ...files, [odd]: text('odd') } }, refs: { main: commitA } };
    expect((await get({ files: ['*.txt', 'README.md'], ignore: ['empty*'] })).files).toEqual(['README.md', odd]);
    expect(await readFile(join(repoPath, 'snapshots', commitA, odd), 'utf8')).toBe('odd');
  });

  it('choose one GGUF model', async () => {
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
    await expect(get()).rejects.toThrow(/a selection of one of/);
    await expect(get({ gguf: 'q' })).rejects.toThrow(/m-Q4_K_M.gguf, m-Q8_0.gguf/);
    await expect(get({ gguf: 'q2_k' })).rejects.toThrow(/a match among/);
  });
});

describe('progress and tokens', () => {
  it('progress only grows and reaches the total', async () => {
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

  it('the token goes to the hub and not to the storage host', async () => {
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

  it('a token from the environment is not sent to a custom endpoint', async () => {
    vi.stubEnv('HF_TOKEN', 'hf_secret');
    await get();
    expect(hub.requests.every(({ authorization }) => authorization === undefined)).toBe(true);
  });
});

describe('an interrupted download', () => {
  it('resumes within the call when the connection is lost', async () => {
    hub.cuts['model.safetensors'] = [300_000, 200_000];
    const { path } = await get();
    expect(sha256(await readFile(join(path, 'model.safetensors')))).toBe(sha256(weights));
    expect(hub.requests.filter(({ kind }) => kind === 'storage').map(({ range }) => range)).toEqual([
      undefined,
      'bytes=300000-',
      'bytes=500000-',
    ]);
  });

  it('resumes in the next call from the stored part', async () => {
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
    expect(hub.requests.find(({ kind }) => kind === 'storage')?.range).toBe('bytes=100000-');
    expect(events[0]).toBe(100_000);
    expect(await contentOf(path)).toEqual(expectedContent(selected));
  });

  it('fails after repeated connection losses, and keeps the received part', async () => {
    hub.cuts['model.safetensors'] = Array.from({ length: 50 }, () => 1000);
    expect(await failure()).toMatchObject({ reason: 'network' });
    expect((await stat(join(repoPath, `${blob}.incomplete`))).size).toBe(6000);
  });

  it('handles a server that ignores ranges', async () => {
    hub.cuts['model.safetensors'] = [300_000];
    hub.ignoresRange = true;
    const { path } = await get();
    expect(sha256(await readFile(join(path, 'model.safetensors')))).toBe(sha256(weights));
  });
});

describe('a killed download', () => {
  it('removes the parts that a killed process left beside its files', async () => {
    const { pid } = spawnSync(process.execPath, ['-e', '']);
    const snapshot = join(repoPath, 'snapshots', commitA);
    const targets = [
      join(snapshot, 'config.json'),
      join(repoPath, 'refs', 'main'),
      join(repoPath, '.winnow', `${commitA}.json`),
    ];
    for (const target of targets) {
      await mkdir(dirname(target), { recursive: true });
      await writeFile((await partPath(target)).replace(`-${process.pid}-`, `-${pid}-`), 'half');
    }
    await get();
    const left = await readdir(repoPath, { recursive: true });
    expect(left.filter((name) => name.endsWith('.part'))).toEqual([]);
  });
});

describe('concurrent and partial downloads', () => {
  it.each([
    ['wrong bytes', noise(5000, 99)],
    ['the right length of wrong bytes', noise(weights.length, 99)],
    ['more bytes than the file has', noise(weights.length + 1, 99)],
  ])('start over when an earlier run left %s', async (_, left) => {
    await mkdir(join(repoPath, 'blobs'), { recursive: true });
    await writeFile(join(repoPath, `${blob}.incomplete`), left);
    const { path } = await get();
    expect(sha256(await readFile(join(path, 'model.safetensors')))).toBe(sha256(weights));
  });

  it('replace a blob that another tool left incomplete', async () => {
    const { path } = await get();
    await truncate(join(repoPath, blob), 1234);
    await get();
    expect(sha256(await readFile(join(path, 'model.safetensors')))).toBe(sha256(weights));
  });

  it('stop on the signal, with its reason, and can be resumed', async () => {
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

  it('stop on the signal while the hub does not respond', async () => {
    const controller = new AbortController();
    hub.intercept = () => {
      controller.abort();
      return true; // never responds
    };
    await expect(get({ signal: controller.signal })).rejects.toThrow(/abort/i);
  });

  it('for the same repository may run at once', async () => {
    const [first, second] = await Promise.all([get(), get()]);
    expect(first).toEqual(second);
    expect(await contentOf(first.path)).toEqual(expectedContent(selected));
  });
});

describe('content that differs from its metadata', () => {
  it.each([
    ['other bytes of the same length', noise(weights.length, 9)],
    ['more bytes', noise(weights.length + 10, 1)],
  ])('%s are rejected and leave no blob', async (_, wrong) => {
    hub.wrong['model.safetensors'] = wrong;
    expect(await failure()).toMatchObject({ reason: 'corrupt', files: ['model.safetensors'] });
    expect(await readdir(join(repoPath, 'blobs'))).not.toContain(sha256(weights));
    delete hub.wrong['model.safetensors'];
    const { path } = await get();
    expect(await contentOf(path)).toEqual(expectedContent(selected));
  });

  it('is detected in small files, too', async () => {
    hub.wrong['config.json'] = text('{"model_type":"lIama"}');
    expect(await failure()).toMatchObject({ reason: 'corrupt', files: ['config.json'] });
  });

  it('is detected when the size behind a range has changed', async () => {
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

  it('names what is missing', async () => {
    expect(await failure({ offline: true })).toMatchObject({ reason: 'not-cached', files: [] });
    await get({ files: ['config.json'] });
    expect((await get({ offline: true, files: ['config.json'] })).files).toEqual(['config.json']);
    const error = await failure({ offline: true });
    expect(error).toMatchObject({ reason: 'not-cached', files: selected.filter((name) => name !== 'config.json') });
    expect(await failure({ offline: true, revision: 'v1.0' })).toMatchObject({ reason: 'not-cached' });
    expect(await failure({ offline: true, revision: commitB })).toMatchObject({ reason: 'not-cached' });
  });

  it('takes a GGUF model without its image encoder when that was not downloaded, and with it when it was', async () => {
    const names = ['m-q4_0.gguf', 'mmproj-m-f16.gguf'];
    const content = Object.fromEntries(names.map((name, seed) => [name, noise(1000, seed)]));
    hub.repos['org/model'] = { commits: { [commitA]: content }, refs: { main: commitA } };
    const alone = await get();
    expect(alone).toMatchObject({ files: ['m-q4_0.gguf'], ggufFile: join(alone.path, 'm-q4_0.gguf') });
    expect((await get({ offline: true, mmproj: true })).files).toEqual(['m-q4_0.gguf']);
    const both = await get({ mmproj: true });
    expect(both).toMatchObject({ files: names, ggufFile: join(both.path, 'm-q4_0.gguf') });
    expect(await get({ offline: true, mmproj: true })).toEqual(both);
  });

  it('ignores dangling links and truncated blobs', async () => {
    await get();
    await truncate(join(repoPath, blob), 10);
    expect(await failure({ offline: true })).toMatchObject({ files: ['model.safetensors'] });
    await rm(join(repoPath, blob));
    expect(await failure({ offline: true })).toMatchObject({ files: ['model.safetensors'] });
  });

  it('uses a cache made by another tool', async () => {
    await get();
    await rm(join(repoPath, '.winnow'), { recursive: true });
    expect([...(await get({ offline: true })).files].sort()).toEqual(selected);
  });
});
