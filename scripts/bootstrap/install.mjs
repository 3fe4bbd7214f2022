/** `pnpm install --frozen-lockfile`, only when a manifest or the lockfile changed since it last succeeded. */
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { toolEnvironment } from './environment.mjs';
import { withLock } from './lock.mjs';
import { root, say, seconds, toolchainFolder } from './log.mjs';
import { runLogged } from './process.mjs';

const stampFile = join(toolchainFolder, 'install.stamp');

/** Folders of all workspace packages, the root first. Follows the patterns of pnpm-workspace.yaml. */
export function workspaceFolders() {
  const folders = [root];
  for (const group of ['packages', 'apps', 'tools']) {
    const parent = join(root, group);
    if (!existsSync(parent)) continue;
    for (const name of readdirSync(parent).sort()) folders.push(join(parent, name));
  }
  folders.push(join(root, 'docs'));
  return folders.filter((folder) => existsSync(join(folder, 'package.json')));
}

function currentStamp(tools) {
  const hash = createHash('sha256').update(`${process.platform} ${process.arch} ${tools.pnpm}\n`);
  const files = ['pnpm-lock.yaml', 'pnpm-workspace.yaml', '.npmrc'].map((name) => join(root, name));
  for (const folder of workspaceFolders()) files.push(join(folder, 'package.json'));
  for (const file of files) hash.update(`${file}\0`).update(existsSync(file) ? readFileSync(file) : 'none');
  return hash.digest('hex');
}

function installed(stamp) {
  if (!existsSync(stampFile) || readFileSync(stampFile, 'utf8') !== stamp) return false;
  return workspaceFolders().every((folder) => {
    const manifest = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    const needs = Object.keys({ ...manifest.dependencies, ...manifest.devDependencies }).length > 0;
    return !needs || existsSync(join(folder, 'node_modules'));
  });
}

export async function installPackages(tools) {
  if (installed(currentStamp(tools))) return;
  await withLock('install', async () => {
    const stamp = currentStamp(tools);
    if (installed(stamp)) return;
    const startMs = Date.now();
    say('installing the packages of the lockfile ...');
    await runLogged(tools.pnpm, ['install', '--frozen-lockfile', '--reporter=append-only'], {
      cwd: root,
      env: { ...toolEnvironment(tools), CI: 'true' },
      logFile: join(toolchainFolder, 'logs', 'install.log'),
      remedy: 'pnpm install failed; if a package.json changed, update the lockfile with "pnpm install"',
    });
    writeFileSync(stampFile, stamp);
    say(`packages ready after ${seconds(startMs)}`);
  });
}
