/** A copy of the workspace to plant defects in: sources and links are copied with their times, installed packages are shared. */
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

/** Build outputs that git ignores and tests read. */
export const compiledFiles: readonly string[] = ['packages/backend-wasm/src/kernels/kernels.generated.ts'];

/** The compiled addon and its objects, if there are any. */
const nativeBuild = 'packages/native/build';

/** @returns the folder; `dispose` removes it */
export function createScratch(root: string): { readonly folder: string; dispose(): void } {
  const folder = mkdtempSync(join(tmpdir(), 'winnow-mutants-'));
  const listed = execFileSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], { cwd: root });
  const files = listed
    .toString('utf8')
    .split('\0')
    .filter((file) => file !== '');
  for (const file of [...files, ...compiledFiles]) {
    if (!existsSync(join(root, file))) continue;
    mkdirSync(dirname(join(folder, file)), { recursive: true });
    cpSync(join(root, file), join(folder, file), { preserveTimestamps: true });
  }
  if (existsSync(join(root, nativeBuild)))
    cpSync(join(root, nativeBuild), join(folder, nativeBuild), { recursive: true, preserveTimestamps: true });
  symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'));
  for (const group of ['packages', 'apps', 'tools', 'examples']) {
    for (const name of readdirSync(join(root, group))) {
      const modules = join(root, group, name, 'node_modules');
      if (!existsSync(modules) || !existsSync(join(folder, group, name))) continue;
      const isLinked = (source: string): boolean => !/node_modules\/\.[^/]/.test(source.slice(root.length));
      // links between packages are relative: they resolve to the packages of the copy
      cpSync(modules, join(folder, group, name, 'node_modules'), {
        recursive: true,
        verbatimSymlinks: true,
        filter: isLinked,
      });
    }
  }
  return { folder, dispose: () => rmSync(folder, { recursive: true, force: true }) };
}
