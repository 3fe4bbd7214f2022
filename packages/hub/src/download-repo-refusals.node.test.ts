import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CapacityError } from '@winnow/tensor';
import { FakeHub, gitSha1, sha256 } from '@winnow/test-utils';
import { describe, expect, it } from 'vitest';
import {
  blob,
  cacheDir,
  commitA,
  contentOf,
  expectedContent,
  failure,
  files,
  folder,
  get,
  hub,
  repoPath,
  selected,
  text,
  weights,
  useHubFixture,
} from '../test/hub-fixture.js';

useHubFixture();

describe('errors of the hub', () => {
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
  ])('a response that is %s', async (_, body) => {
    hub.intercept = (_request, response) => {
      response.setHeader('content-type', 'application/json').end(body);
      return true;
    };
    expect(await failure()).toMatchObject({ reason: 'server' });
    await expect(stat(cacheDir)).rejects.toThrow(/ENOENT/);
  });
});

describe('invalid names and lists', () => {
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

  it('nothing is written outside the cache', async () => {
    const evil = ['../evil.json', '/evil.json', '..\\evil.json', 'a/../../evil.json', 'C:evil.json', '.\u0000.json'];
    hub.editTree = (entries) => [
      ...entries,
      ...evil.map((path) => ({ type: 'file', path, size: 2, oid: gitSha1(text('{}')) })),
    ];
    expect((await get()).files).toEqual(selected);
    expect((await readdir(folder, { recursive: true })).filter((name) => name.includes('evil'))).toEqual([]);
  });

  it('an endless list', async () => {
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

describe('disk errors', () => {
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
    'a full disk leaves no file that looks complete (needs /dev/full)',
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

  it('a blob folder in place of a link', async () => {
    await mkdir(join(repoPath, 'snapshots', commitA, 'config.json', 'x'), { recursive: true });
    expect(await failure()).toMatchObject({ reason: 'disk' });
  });

  it('too little disk space is reported before anything is transferred', async () => {
    const huge = { oid: 'd'.repeat(64), size: 2 ** 52, pointerSize: 1 };
    hub.editTree = (entries) =>
      entries.map((entry) => (entry['path'] === 'model.safetensors' ? { ...entry, lfs: huge } : entry));
    await expect(get()).rejects.toBeInstanceOf(CapacityError);
    expect(hub.numRequests('resolve')).toBe(0);
  });
});
