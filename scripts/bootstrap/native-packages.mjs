/**
 * The packages of native kernels in a release, one per platform: each folder of `--native FOLDER`, as the workflow `native` made it.
 * A rehearsal without them packs that of this machine.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { root } from './log.mjs';

const scripts = join(root, 'packages', 'native', 'scripts');

/** Platforms of which a release has packages, those of the workflow `native`. */
export const releasedPlatforms = [
  'linux-x64-gnu',
  'linux-x64-musl',
  'linux-arm64-gnu',
  'darwin-x64',
  'darwin-arm64',
  'win32-x64',
];

const readJson = (path) => JSON.parse(readFileSync(path, 'utf8'));
const nameOf = (platform) => `@winnow/native-${platform}`;

/** The packages in the folders of a folder. */
export function nativePackages(folder) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder)
    .map((name) => join(folder, name))
    .filter((path) => existsSync(join(path, 'package.json')))
    .map((path) => ({ path, manifest: readJson(join(path, 'package.json')) }));
}

/** What is wrong with packages, or missing, for a manifest of @winnow/native. */
export function nativeObstacles(packages, { version, optionalDependencies = {} }, platforms = releasedPlatforms) {
  const found = packages.flatMap(({ path, manifest }) => {
    const addon = join(path, 'winnow.node');
    const problems = [
      !platforms.map(nameOf).includes(manifest.name) && 'is for no platform of a release',
      manifest.version !== version && `has version ${manifest.version}, expected ${version}`,
      manifest.scripts !== undefined && 'has scripts',
      !(existsSync(addon) && statSync(addon).size > 0) && 'has no winnow.node',
      optionalDependencies[manifest.name] !== version && 'is no optional dependency: run platform-package.mjs --link',
    ];
    return problems.filter(Boolean).map((problem) => `${manifest.name} ${problem}`);
  });
  const names = packages.map(({ manifest }) => manifest.name);
  const missing = platforms.map(nameOf).filter((name) => !names.includes(name));
  return [...found, ...missing.map((name) => `${name} is missing: download the artifacts of the workflow "native"`)];
}

export function nativeManifest() {
  return readJson(join(root, 'packages', 'native', 'package.json'));
}

/** Packs the addon of this machine, if it was built, into a folder for `nativePackages`. */
export async function packOwnPlatform(tools) {
  const { platformName } = await import(pathToFileURL(join(scripts, 'levels.mjs')).href);
  const folder = mkdtempSync(join(tmpdir(), 'winnow-native-packages-'));
  if (!existsSync(join(root, 'packages', 'native', 'build', platformName(), 'winnow.node'))) return folder;
  const target = join(folder, platformName());
  const { status, stderr } = spawnSync(tools.node, [join(scripts, 'platform-package.mjs'), '--to', target]);
  if (status !== 0) throw new Error(`the addon of this machine cannot be packed: ${stderr}`);
  return folder;
}
