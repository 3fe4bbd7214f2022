/**
 * Writes the npm package of this platform's addon, or that of `--platform`: `node scripts/platform-package.mjs [--to FOLDER]` after
 * `scripts/build.mjs`. It holds the binary and a manifest with os, cpu and libc, so that npm installs it on matching
 * machines alone, and has no scripts.
 *
 * `--link FOLDER...` instead makes the packages in these folders optional dependencies of @winnow/native, in its manifest, for a
 * release.
 */
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { platformName } from './levels.mjs';

const folder = dirname(dirname(fileURLToPath(import.meta.url)));
const manifestFile = join(folder, 'package.json');

function readManifest(file) {
  return JSON.parse(readFileSync(file, 'utf8'));
}

function writeManifest(file, manifest) {
  writeFileSync(file, `${JSON.stringify(manifest, null, 2)}\n`);
}

/** The manifest of the package for a platform such as `linux-x64-gnu`. */
export function platformManifest(platform, { version, license, homepage, repository, engines }) {
  const [os, cpu, libc] = platform.split('-');
  return {
    name: `@winnow/native-${platform}`,
    version,
    description: `Native kernels of Winnow for ${platform}`,
    keywords: ['native', 'winnow'],
    ...{ homepage, license, repository, engines },
    os: [os],
    cpu: [cpu],
    ...(libc === undefined ? {} : { libc: [libc === 'gnu' ? 'glibc' : libc] }),
    files: ['winnow.node'],
  };
}

function writePackage(platform, target) {
  const addon = join(folder, 'build', platform, 'winnow.node');
  if (!existsSync(addon)) throw new Error(`${addon} is missing: run scripts/build.mjs first`);
  mkdirSync(target, { recursive: true });
  copyFileSync(addon, join(target, 'winnow.node'));
  copyFileSync(join(folder, '..', '..', 'LICENSE'), join(target, 'LICENSE'));
  writeManifest(join(target, 'package.json'), platformManifest(platform, readManifest(manifestFile)));
  const source = 'https://github.com/winnow-ai/winnow/tree/main/packages/native';
  const readme = `# @winnow/native-${platform}\n\nThe binary of [@winnow/native](${source}) for ${platform}.\n`;
  writeFileSync(join(target, 'README.md'), readme);
}

/** All packages of a release have one version; an exact one, since kernels and interpreter belong together. */
export function linked(manifest, packages) {
  for (const { name, version } of packages) {
    if (version !== manifest.version) throw new Error(`${name} has version ${version}, expected ${manifest.version}`);
  }
  const entries = packages.map(({ name, version }) => [name, version]).toSorted(([a], [b]) => (a < b ? -1 : 1));
  return { ...manifest, optionalDependencies: Object.fromEntries(entries) };
}

function main() {
  const { values, positionals } = parseArgs({
    options: {
      to: { type: 'string' },
      platform: { type: 'string', default: platformName() },
      link: { type: 'boolean', default: false },
    },
    allowPositionals: true,
  });
  if (values.link) {
    const packages = positionals.map((path) => readManifest(join(path, 'package.json')));
    writeManifest(manifestFile, linked(readManifest(manifestFile), packages));
    return;
  }
  const target = values.to ?? join(folder, 'build', 'package');
  writePackage(values.platform, target);
  process.stdout.write(`${target}\n`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main();
