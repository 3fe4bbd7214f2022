/** `pnpm test:integrations`: builds what the archives of the public packages contain, then packs and runs them in fresh projects. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { toolEnvironment } from './environment.mjs';
import { workspaceFolders } from './install.mjs';
import { withLock } from './lock.mjs';
import { root } from './log.mjs';
import { runThrough } from './process.mjs';
import { buildLogged } from './turbo.mjs';

/** Folder, name and version of every package that users install. */
export function publicPackages() {
  return workspaceFolders()
    .map((folder) => ({ folder, ...JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) }))
    .filter((manifest) => manifest.private !== true)
    .map(({ folder, name, version }) => ({ folder, name, version }));
}

/** @param prepare runs before the build, under its lock */
export async function buildPublic(tools, prepare = () => {}) {
  const remedy = 'the build failed; its output is above and in .toolchain/logs/build.log';
  const filters = publicPackages().map(({ name }) => `--filter=${name}`);
  await withLock('build', async () => {
    prepare();
    await buildLogged(tools, ['run', 'build', ...filters, '--output-logs=errors-only'], remedy);
  });
}

export async function taskIntegrations(tools, rest) {
  await buildPublic(tools);
  const main = join(root, 'tools', 'integrations', 'src', 'main.ts');
  return runThrough(tools.node, [main, ...rest], { cwd: root, env: toolEnvironment(tools) });
}
