/**
 * Layers inside a package: `folders` of layers.json lists the folders of `src` by layer, lowest first. A file imports
 * from its own folder and from folders in lower layers; files directly in `src` import from all of them. Tests are
 * exempt.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import { moduleUses } from './imports.ts';
import { isDevelopmentFile, listFiles, type WorkspacePackage } from './workspace.ts';

/** By short name of a package. */
export type FolderLayers = Readonly<Record<string, readonly (readonly string[])[]>>;

export function checkFolders(packages: readonly WorkspacePackage[], folders: FolderLayers): string[] {
  const problems: string[] = [];
  for (const [name, layers] of Object.entries(folders)) {
    const entry = packages.find(({ shortName }) => shortName === name);
    if (entry === undefined) problems.push(`layers.json: folders of "${name}", which is not a package`);
    else problems.push(...checkPackage(entry, layers));
  }
  return problems;
}

function checkPackage(entry: WorkspacePackage, layers: readonly (readonly string[])[]): string[] {
  const layerOf = new Map(layers.flatMap((names, layer) => names.map((name) => [name, layer] as const)));
  const problems = missingFolders(entry, layerOf);
  for (const file of listFiles(join(entry.folder, 'src'), (path) => path.endsWith('.ts'))) {
    const from = folderOf(file);
    if (from === undefined || isDevelopmentFile(`src/${file}`)) continue;
    for (const { specifier, line } of moduleUses(file, readFileSync(join(entry.folder, 'src', file), 'utf8'))) {
      if (!specifier.startsWith('.')) continue;
      const target = posix.normalize(posix.join(posix.dirname(file), specifier));
      const reason = violation(from, folderOf(target), layerOf);
      if (reason !== undefined)
        problems.push(`${entry.location}/src/${file}:${line}: imports "${specifier}": ${reason}`);
    }
  }
  return problems;
}

/** The top folder of a path; undefined for a file directly in `src`. */
function folderOf(path: string): string | undefined {
  const end = path.indexOf('/');
  return end < 0 ? undefined : path.slice(0, end);
}

function missingFolders({ folder, location }: WorkspacePackage, layerOf: ReadonlyMap<string, number>): string[] {
  const source = join(folder, 'src');
  const found = readdirSync(source, { withFileTypes: true }).filter((child) => child.isDirectory());
  const unlisted = found.filter(({ name }) => !name.startsWith('__') && !layerOf.has(name));
  const gone = [...layerOf.keys()].filter((name) => !existsSync(join(source, name)));
  return [
    ...unlisted.map(({ name }) => `${location}/src/${name}: is missing in "folders" of layers.json`),
    ...gone.map((name) => `layers.json: ${location}/src has no folder "${name}"`),
  ];
}

/** Why a file of folder `from` may not import one of `to`, or undefined. */
function violation(from: string, to: string | undefined, layerOf: ReadonlyMap<string, number>): string | undefined {
  if (to === from) return undefined;
  if (to === undefined) return `folders do not import files directly in src`;
  const [fromLayer = 0, toLayer = 0] = [layerOf.get(from), layerOf.get(to)];
  if (toLayer < fromLayer) return undefined;
  if (toLayer === fromLayer) return `"${from}" and "${to}" are siblings of layer ${toLayer}`;
  return `imports go down only: "${to}" is in layer ${toLayer}, above ${fromLayer} of "${from}"`;
}
