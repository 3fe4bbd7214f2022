/** The npm packages of addons, as built for a release. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { findAddon, platformName } from '../src/index.node.js';

interface Release {
  platformManifest(platform: string, manifest: object): object;
  linked(manifest: object, packages: readonly object[]): object;
}

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const script = join(root, 'scripts', 'platform-package.mjs');
const { platformManifest, linked } = (await import(script)) as Release;
const folder = mkdtempSync(join(tmpdir(), 'winnow-platform-'));
afterAll(() => rmSync(folder, { recursive: true }));

describe('manifests', () => {
  it.each([
    ['linux-x64-gnu', { os: ['linux'], cpu: ['x64'], libc: ['glibc'] }],
    ['linux-arm64-musl', { os: ['linux'], cpu: ['arm64'], libc: ['musl'] }],
    ['darwin-arm64', { os: ['darwin'], cpu: ['arm64'] }],
    ['win32-x64', { os: ['win32'], cpu: ['x64'] }],
  ])('%s', (platform, fields) => {
    const manifest = platformManifest(platform, { version: '1.2.3', license: 'MIT' });
    expect(manifest).toMatchObject({
      name: `@winnow/native-${platform}`,
      version: '1.2.3',
      files: ['winnow.node'],
      ...fields,
    });
    expect(manifest).not.toHaveProperty('scripts');
    expect('libc' in manifest).toBe('libc' in fields);
  });

  it('optional dependencies have the version of the release', () => {
    const packages = ['linux-x64-gnu', 'darwin-arm64'].map((platform) =>
      platformManifest(platform, { version: '1.2.3' }),
    );
    expect(linked({ name: '@winnow/native', version: '1.2.3' }, packages)).toEqual({
      name: '@winnow/native',
      version: '1.2.3',
      optionalDependencies: { '@winnow/native-darwin-arm64': '1.2.3', '@winnow/native-linux-x64-gnu': '1.2.3' },
    });
    expect(() => linked({ version: '1.2.4' }, packages)).toThrow('has version 1.2.3, expected 1.2.4');
  });
});

describe.skipIf(findAddon() === undefined)('the package of this platform', () => {
  it('holds the addon, which resolves from a project that installed it', () => {
    const name = `@winnow/native-${platformName()}`;
    const target = join(folder, 'node_modules', name);
    const { status, stderr } = spawnSync(process.execPath, [script, '--to', target], { encoding: 'utf8' });
    expect([status, stderr]).toEqual([0, '']);
    expect(readdirSync(target).toSorted()).toEqual(['LICENSE', 'README.md', 'package.json', 'winnow.node']);
    const installed = createRequire(join(folder, 'project.js')).resolve(`${name}/winnow.node`);
    expect(readFileSync(installed).equals(readFileSync(findAddon() as string))).toBe(true);
  });
});
