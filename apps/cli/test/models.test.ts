/** `winnow pull`, `list` and `rm`. Downloads and the cache are tested in the hub. */
import { expect, test } from 'vitest';
import type { Download, HubCacheApi } from '../src/terminal/io.js';
import { createFakeEngine } from './fake-engine.js';
import { runCli, type CliRun, type CliSetup } from './run-cli.js';

const repos = [
  {
    repo: 'org/a',
    path: '/cache/models--org--a',
    revisions: ['dev', 'main'],
    sizeBytes: 5_000_000,
    incompleteBytes: 0,
  },
  { repo: 'org/b', path: '/cache/models--org--b', revisions: [], sizeBytes: 2000, incompleteBytes: 1500 },
];

function run(argv: readonly string[], setup: CliSetup = {}): Promise<CliRun> {
  return runCli(createFakeEngine().api, argv, setup);
}

test('pull downloads each model and prints its path', async () => {
  const asked: unknown[] = [];
  const download: Download = async (request) => {
    asked.push(request);
    return `/cache/${request.repo}`;
  };
  const { code, stdout } = await run(['pull', 'hf:org/a', 'hf:org/b@dev:q4_k_m'], { download });
  expect({ code, stdout }).toEqual({ code: 0, stdout: '/cache/org/a\n/cache/org/b\n' });
  expect(asked).toEqual([
    { repo: 'org/a', revision: undefined, file: undefined },
    { repo: 'org/b', revision: 'dev', file: 'q4_k_m' },
  ]);
  const refused = await run(['pull', 'hf:org/a', './model.gguf'], { download });
  expect(refused.code).toBe(2);
  expect(refused.stderr).toContain('expected a repository of the hub');
  expect(asked).toHaveLength(2); // nothing was downloaded
});

test('list shows sizes, unfinished downloads and revisions', async () => {
  const hubCache: HubCacheApi = { listCachedRepos: async () => repos, removeCachedRepo: async () => undefined };
  const { stdout } = await run(['list'], { hubCache });
  expect(stdout.split('\n').map((line) => line.trimEnd().split(/ {2,}/))).toEqual([
    ['model', 'size', 'download', 'revisions'],
    ['org/a', '5 MB', 'dev, main'],
    ['org/b', '2 kB', '1.5 kB unfinished'],
    [''],
  ]);
  expect(JSON.parse((await run(['list', '--json'], { hubCache })).stdout)).toEqual(repos);
});

test('rm removes whole repositories and says how much', async () => {
  const removed: string[] = [];
  const hubCache: HubCacheApi = {
    listCachedRepos: async () => repos,
    removeCachedRepo: async (repo) => {
      removed.push(repo);
      return repos.find((cached) => cached.repo === repo);
    },
  };
  const { code, stderr } = await run(['rm', 'hf:org/a'], { hubCache });
  expect([code, stderr]).toEqual([0, 'winnow: removed org/a: 5 MB\n']);
  for (const model of ['hf:org/a:q4_k_m', 'hf:org/a@dev']) {
    expect((await run(['rm', model], { hubCache })).stderr).toContain('expected a whole repository');
  }
  expect(removed).toEqual(['org/a']);
  expect((await run(['rm', 'hf:org/none'], { hubCache })).stderr).toContain('org/none is not on this computer');
});
