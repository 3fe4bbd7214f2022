/** Location of test data outside the repository: a folder `shared` next to the checkout. */
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

function findRoot(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, 'pnpm-workspace.yaml'))) {
    const parent = dirname(folder);
    if (parent === folder) throw new Error('test-utils: no pnpm-workspace.yaml above this file');
    folder = parent;
  }
  return folder;
}

/** Root folder of the workspace. */
export const repoRoot: string = findRoot();

/**
 * Path below `<root>/../shared` (or below `WINNOW_SHARED` when that is set), or `undefined` when it does not exist, in
 * which case a test is skipped by name.
 */
export function sharedDataPath(...parts: string[]): string | undefined {
  const base = process.env['WINNOW_SHARED'] ?? join(repoRoot, '..', 'shared');
  const path = join(base, ...parts);
  return existsSync(path) ? path : undefined;
}
