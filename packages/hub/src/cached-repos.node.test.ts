import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { HubError, listCachedRepos, removeCachedRepo } from './index.node.js';

let cacheDir: string;

beforeEach(async () => {
  cacheDir = await mkdtemp(join(tmpdir(), 'winnow-cache-'));
});

afterEach(async () => {
  await rm(cacheDir, { recursive: true });
});

async function add(folder: string, blobs: Readonly<Record<string, number>>, refs: readonly string[]): Promise<void> {
  for (const name of ['blobs', 'refs', 'snapshots']) await mkdir(join(cacheDir, folder, name), { recursive: true });
  for (const [name, size] of Object.entries(blobs)) {
    await writeFile(join(cacheDir, folder, 'blobs', name), new Uint8Array(size));
  }
  for (const name of refs) await writeFile(join(cacheDir, folder, 'refs', name), 'a commit');
}

test('lists models with their sizes, unfinished downloads and revisions', async () => {
  await add('models--org--a--b', { aa: 10, bb: 5, 'cc.incomplete': 3 }, ['main', 'dev']);
  await add('models--gpt2', { aa: 1 }, []);
  await add('datasets--org--data', { aa: 7 }, ['main']);
  await mkdir(join(cacheDir, 'models--org--empty'));
  const found = await listCachedRepos({ cacheDir });
  expect(found.map(({ path: _path, ...rest }) => rest)).toEqual([
    { repo: 'gpt2', revisions: [], sizeBytes: 1, incompleteBytes: 0 },
    { repo: 'org/a--b', revisions: ['dev', 'main'], sizeBytes: 18, incompleteBytes: 3 },
    { repo: 'org/empty', revisions: [], sizeBytes: 0, incompleteBytes: 0 },
  ]);
  expect(await listCachedRepos({ cacheDir: join(cacheDir, 'none') })).toEqual([]);
});

test('removes one model and nothing else', async () => {
  await add('models--org--a', { aa: 10 }, ['main']);
  await add('models--org--ab', { aa: 1 }, []);
  await add('datasets--org--a', { aa: 7 }, ['main']);
  for (const repo of ['org', '../org/a', 'org/b', '', '..']) {
    expect(await removeCachedRepo(repo, { cacheDir })).toBe(undefined);
  }
  expect(await removeCachedRepo('org/a', { cacheDir })).toMatchObject({ repo: 'org/a', sizeBytes: 10 });
  expect((await readdir(cacheDir)).toSorted()).toEqual(['datasets--org--a', 'models--org--ab']);
});

test('a cache that is not a folder is an error of the disk', async () => {
  const file = join(cacheDir, 'file');
  await writeFile(file, '');
  const failure = await listCachedRepos({ cacheDir: file }).catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(HubError);
  expect(failure).toMatchObject({ reason: 'disk' });
});
