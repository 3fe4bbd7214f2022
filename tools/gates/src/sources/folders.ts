/**
 * Layers inside a package: `folders` of layers.json lists the folders of `src` by layer, lowest first. A file imports
 * from its own folder and from folders in lower layers. `"."` in a layer stands for files directly in `src` that folders
 * import; other files directly in `src` import from all folders. Tests are exempt.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import { moduleUses } from '../workspace/imports.ts';
import { isDevelopmentFile, listFiles, type WorkspacePackage } from '../workspace/workspace.ts';

/** By short name of a package. */
export type FolderLayers = Readonly<Record<string, readonly (readonly string[])[]>>;

/** A package, application or tool with more folders needs their order. */
const maxUnorderedFolders = 2;

/** An import of another file of the package; paths are relative to `src`. */
interface FileImport {
  readonly file: string;
  readonly line: number;
  readonly specifier: string;
  readonly target: string;
}

export function checkFolders(packages: readonly WorkspacePackage[], folders: FolderLayers): string[] {
  const known = new Set(packages.map(({ shortName }) => shortName));
  const gone = Object.keys(folders).filter((name) => !known.has(name));
  return [
    ...gone.map((name) => `layers.json: folders of "${name}", which is not a package`),
    ...packages.flatMap((entry) => checkPackage(entry, folders[entry.shortName])),
  ];
}

function checkPackage(entry: WorkspacePackage, layers: readonly (readonly string[])[] | undefined): string[] {
  const source = join(entry.folder, 'src');
  const found = existsSync(source) ? foldersOf(source) : [];
  if (layers === undefined) {
    if (found.length <= maxUnorderedFolders) return [];
    return [`${entry.location}/src: ${found.length} folders without an order in "folders" of layers.json`];
  }
  const layerOf = new Map(layers.flatMap((names, layer) => names.map((name) => [name, layer] as const)));
  const imports = importsOf(source);
  const shared = layerOf.has('.') ? filesForFolders(imports) : new Set<string>();
  const problems = missingFolders(entry, found, layerOf);
  for (const { file, line, specifier, target } of imports) {
    const from = folderOf(file);
    if (from === '.' && !shared.has(file)) continue;
    const reason = violation(from, folderOf(target), layerOf);
    if (reason !== undefined) problems.push(`${entry.location}/src/${file}:${line}: imports "${specifier}": ${reason}`);
  }
  return problems;
}

function foldersOf(source: string): string[] {
  const children = readdirSync(source, { withFileTypes: true });
  return children.filter((child) => child.isDirectory() && !child.name.startsWith('__')).map(({ name }) => name);
}

function importsOf(source: string): FileImport[] {
  const files = listFiles(source, (path) => path.endsWith('.ts') && !isDevelopmentFile(`src/${path}`));
  return files.flatMap((file) =>
    moduleUses(file, readFileSync(join(source, file), 'utf8'))
      .filter(({ specifier }) => specifier.startsWith('.'))
      .map(({ specifier, line }) => {
        const target = posix.normalize(posix.join(posix.dirname(file), specifier)).replace(/\.js$/, '.ts');
        return { file, line, specifier, target };
      }),
  );
}

/** The files directly in `src` that folders import, and those that these import. */
function filesForFolders(imports: readonly FileImport[]): Set<string> {
  const isDirect = (path: string): boolean => folderOf(path) === '.';
  const found = new Set(imports.filter(({ file, target }) => !isDirect(file) && isDirect(target)).map((i) => i.target));
  // a set visits what is added during its iteration
  for (const path of found) {
    for (const { file, target } of imports) if (file === path && isDirect(target)) found.add(target);
  }
  return found;
}

/** The top folder of a path; "." for a file directly in `src`. */
function folderOf(path: string): string {
  const end = path.indexOf('/');
  return end < 0 ? '.' : path.slice(0, end);
}

function missingFolders(
  { location }: WorkspacePackage,
  found: readonly string[],
  layerOf: ReadonlyMap<string, number>,
): string[] {
  const gone = [...layerOf.keys()].filter((name) => name !== '.' && !found.includes(name));
  return [
    ...found
      .filter((name) => !layerOf.has(name))
      .map((name) => `${location}/src/${name}: is missing in "folders" of layers.json`),
    ...gone.map((name) => `layers.json: ${location}/src has no folder "${name}"`),
  ];
}

/** Why a file of folder `from` may not import one of `to`, or undefined. */
function violation(from: string, to: string, layerOf: ReadonlyMap<string, number>): string | undefined {
  if (to === from) return undefined;
  if (to === '.' && !layerOf.has('.')) return `folders do not import files directly in src`;
  const [fromLayer = 0, toLayer = 0] = [layerOf.get(from), layerOf.get(to)];
  if (toLayer < fromLayer) return undefined;
  if (toLayer === fromLayer) return `"${from}" and "${to}" are siblings of layer ${toLayer}`;
  return `imports go down only: "${to}" is in layer ${toLayer}, above ${fromLayer} of "${from}"`;
}
