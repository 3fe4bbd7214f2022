/**
 * Whether the built program is older than its sources, without starting turbo. Compares sizes and times (of content and
 * of inode, so that a checkout, a copy that keeps times, or an edit of equal length all show) with those of the last build.
 */
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { workspaceFolders } from './install.mjs';
import { root, toolchainFolder } from './log.mjs';

const stampFile = join(toolchainFolder, 'build.stamp');
const notBuilt = new Set([
  'node_modules',
  '.turbo',
  '.cache',
  'build',
  'coverage',
  'source',
  '__fixtures__',
  'test',
  'bench',
]);
const rootFiles = ['pnpm-lock.yaml', 'turbo.json', 'package.json'];

/** The program's package and all workspace packages it needs, by their manifests. */
function programFolders() {
  const byName = new Map();
  for (const folder of workspaceFolders()) {
    const manifest = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    byName.set(manifest.name, {
      folder,
      needs: Object.keys({ ...manifest.dependencies, ...manifest.devDependencies }),
    });
  }
  const found = new Set();
  const visit = (name) => {
    const entry = byName.get(name);
    if (!entry || found.has(entry.folder)) return;
    found.add(entry.folder);
    for (const need of entry.needs) visit(need);
  };
  visit('@winnow/cli');
  return [...found].sort();
}

function isSkipped(name) {
  return notBuilt.has(name) || name.endsWith('.test.ts') || name.endsWith('.md');
}

/** Hashes the `sources`, or the `output`: everything in `dist`, and sources that the build generates. */
function hashFiles(part) {
  const hash = createHash('sha256').update(process.version);
  const add = (path) => {
    const { size, mtimeNs, ctimeNs } = statSync(path, { bigint: true });
    hash.update(`${path}\0${size}\0${mtimeNs}\0${ctimeNs}\n`);
  };
  const visit = (folder, isOutput) => {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      if (isSkipped(entry.name)) continue;
      const path = join(folder, entry.name);
      const isOutputHere = isOutput || entry.name === 'dist' || entry.name.includes('.generated.');
      if (entry.isDirectory()) visit(path, isOutputHere);
      else if (isOutputHere === (part === 'output')) add(path);
    }
  };
  if (part === 'sources') for (const name of rootFiles) if (existsSync(join(root, name))) add(join(root, name));
  for (const folder of programFolders()) visit(folder, false);
  return hash.digest('hex');
}

/** State of the sources. Take it before building, so that an edit during the build leaves the stamp stale. */
export function sourceStamp() {
  return hashFiles('sources');
}

export function buildStale() {
  if (!existsSync(join(root, 'apps', 'cli', 'dist', 'main.js')) || !existsSync(stampFile)) return true;
  return readFileSync(stampFile, 'utf8') !== `${hashFiles('sources')}\n${hashFiles('output')}`;
}

/** Call after a build that succeeded, with the source stamp taken before it. */
export function recordBuild(builtFrom) {
  writeFileSync(stampFile, `${builtFrom}\n${hashFiles('output')}`);
}
