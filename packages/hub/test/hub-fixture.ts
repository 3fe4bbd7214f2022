/** A fake hub with one repository and a new cache folder for every test. */
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { IoError } from '@winnow/tensor';
import { FakeHub, sha256 } from '@winnow/test-utils';
import { afterEach, beforeEach, expect, vi } from 'vitest';
import { downloadRepo, HubError, type DownloadRepoOptions } from '../src/index.node.js';

export const commitA: string = 'a'.repeat(40);
export const commitB: string = 'b'.repeat(40);
export const text = (content: string): Uint8Array => new TextEncoder().encode(content);
export const noise = (length: number, seed: number): Uint8Array =>
  Uint8Array.from({ length }, (_, i) => Math.imul(i + seed, 0x9e3779b1) >>> 24);

export const files: Record<string, Uint8Array> = {
  'config.json': text('{"model_type":"llama"}'),
  'tokenizer.json': text('{}'),
  'empty.txt': new Uint8Array(0),
  '1_Pooling/config.json': text('{"pooling_mode_mean_tokens":true}'),
  'model.safetensors': noise(1_000_000, 1),
  'pytorch_model.bin': noise(5000, 2),
  'onnx/model.onnx': noise(5000, 3),
  'README.md': text('# model'),
};
export const weights = files['model.safetensors'] as Uint8Array;
export const selected: readonly string[] = [
  '1_Pooling/config.json',
  'config.json',
  'empty.txt',
  'model.safetensors',
  'tokenizer.json',
];

// replaced before every test
/* oxlint-disable import/no-mutable-exports */
export let hub: FakeHub;
export let folder: string;
export let cacheDir: string;
export let repoPath: string;
/* oxlint-enable import/no-mutable-exports */
export const get = (more: Partial<DownloadRepoOptions> = {}): ReturnType<typeof downloadRepo> =>
  downloadRepo({ repo: 'org/model', endpoint: hub.endpoint, fetch: hub.fetch, cacheDir, offline: false, ...more });
export const failure = async (more: Partial<DownloadRepoOptions> = {}): Promise<HubError> => {
  const error = await get(more).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(HubError);
  expect(error).toBeInstanceOf(IoError);
  return error as HubError;
};
export const contentOf = async (path: string): Promise<Record<string, string>> => {
  const names = (await readdir(path, { recursive: true, withFileTypes: true })).filter((entry) => !entry.isDirectory());
  const pairs = names.map(async (entry) => {
    const full = join(entry.parentPath, entry.name);
    return [full.slice(path.length + 1), sha256(await readFile(full))] as const;
  });
  return Object.fromEntries((await Promise.all(pairs)).sort());
};
export const expectedContent = (names: readonly string[]): Record<string, string> =>
  Object.fromEntries(names.map((name) => [name, sha256(files[name] as Uint8Array)]));
export const blob: string = join('blobs', sha256(weights));

/** Call once per test file. */
export function useHubFixture(): void {
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
}
