/** Archives of the public packages, as `pnpm publish` would upload them. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { runProgram } from '@winnow/gates/run';
import { readWorkspace, type WorkspacePackage } from '@winnow/gates/workspace';

/** Path of the archive by package name. */
export type Archives = ReadonlyMap<string, string>;

export function publicPackages(root: string): WorkspacePackage[] {
  return readWorkspace(root).packages.filter(({ manifest }) => manifest.private !== true);
}

/**
 * Packs the built packages into `target`.
 * @throws {Error} when pnpm fails, or an archive is missing
 */
export function packAll(root: string, target: string): Archives {
  const packages = publicPackages(root);
  const filters = packages.map(({ name }) => `--filter=${name}`);
  const packed = runProgram('pnpm', ['-r', ...filters, 'pack', '--pack-destination', target], { cwd: root });
  if (packed.code !== 0) throw new Error(`pnpm pack failed:\n${packed.output}`);
  const files = readdirSync(target);
  return new Map(
    packages.map(({ name, manifest }) => {
      const file = `${name.slice(1).replace('/', '-')}-${manifest.version}.tgz`;
      if (!files.includes(file)) throw new Error(`pnpm pack wrote no ${file}`);
      return [name, join(target, file)];
    }),
  );
}
