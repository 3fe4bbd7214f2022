/**
 * Layers: declared dependencies and real imports follow layers.json. Imports go down only, packages of one layer never
 * import each other, development helpers appear only in devDependencies and tests.
 */
import { readFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import { moduleUses, packageOfSpecifier } from '../workspace/imports.ts';
import {
  dependencyFields,
  isDevelopmentFile,
  isFixture,
  isOfTemplate,
  isScript,
  listFiles,
  readJson,
  type Workspace,
  type WorkspacePackage,
} from '../workspace/workspace.ts';
import { checkFolders, type FolderLayers } from './folders.ts';

interface Layers {
  /** Lowest first. */
  readonly layers: readonly (readonly string[])[];
  /** Development helpers, outside the layers. */
  readonly dev: readonly string[];
  /** Layered packages that development helpers may use. */
  readonly devUses: readonly string[];
  /** Layers of the folders inside packages. */
  readonly folders?: FolderLayers;
}

const development = -1;

export function checkBoundaries(workspace: Workspace): string[] {
  const problems: string[] = [];
  const layers = readJson<Layers>(join(workspace.root, 'layers.json'));
  const byName = new Map(workspace.packages.map((entry) => [entry.name, entry]));
  const layerOf = new Map<string, number>();
  layers.layers.forEach((names, layer) => names.forEach((name) => layerOf.set(name, layer)));
  for (const name of layers.dev) layerOf.set(name, development);

  let numImports = 0;
  for (const entry of workspace.packages) {
    if (!layerOf.has(entry.shortName)) {
      problems.push(`${entry.location}: "${entry.shortName}" is missing in layers.json`);
      continue;
    }
    const rule = (target: WorkspacePackage, forDevelopment: boolean): string | undefined =>
      violation(entry, target, forDevelopment, layerOf, layers.devUses);
    checkDeclared(entry, byName, rule, problems);
    numImports += checkImports(entry, byName, rule, problems);
  }
  problems.push(...checkFolders(workspace.packages, layers.folders ?? {}));
  if (numImports === 0) problems.push('boundaries: no import was found in any package, so nothing was checked');
  return problems;
}

/** Why `from` may not use `to`, or undefined. */
function violation(
  from: WorkspacePackage,
  to: WorkspacePackage,
  forDevelopment: boolean,
  layerOf: ReadonlyMap<string, number>,
  devUses: readonly string[],
): string | undefined {
  const fromLayer = layerOf.get(from.shortName) ?? development;
  const toLayer = layerOf.get(to.shortName);
  if (toLayer === undefined) return `"${to.shortName}" is missing in layers.json`;
  if (toLayer === development) {
    if (fromLayer === development || forDevelopment) return undefined;
    return `"${to.shortName}" is a development helper, for devDependencies and tests only`;
  }
  if (fromLayer === development) {
    // Tools at the end of the build may import anything in tests; nothing depends on them.
    if (forDevelopment || devUses.includes(to.shortName)) return undefined;
    return `development helpers may only use ${devUses.join(', ')} , not "${to.shortName}"`;
  }
  if (toLayer > fromLayer) return `imports go down only: "${to.shortName}" is in layer ${toLayer}, above ${fromLayer}`;
  if (toLayer === fromLayer && !forDevelopment) return `siblings of layer ${fromLayer} never import each other`;
  return undefined;
}

type Rule = (target: WorkspacePackage, forDevelopment: boolean) => string | undefined;

function checkDeclared(
  entry: WorkspacePackage,
  byName: ReadonlyMap<string, WorkspacePackage>,
  rule: Rule,
  problems: string[],
): void {
  for (const field of dependencyFields) {
    for (const name of Object.keys(entry.manifest[field] ?? {})) {
      const target = byName.get(name);
      const reason = target && rule(target, field === 'devDependencies');
      if (reason) problems.push(`${entry.location}/package.json: ${field} "${name}": ${reason}`);
    }
  }
}

/** AssemblyScript looks like TypeScript but is not, and imports nothing from outside its folder. */
function isModule(path: string): boolean {
  return isScript(path) && !isFixture(path) && !path.startsWith('assembly/');
}

function checkImports(
  entry: WorkspacePackage,
  byName: ReadonlyMap<string, WorkspacePackage>,
  rule: Rule,
  problems: string[],
): number {
  const { manifest } = entry;
  const runtime = { ...manifest.dependencies, ...manifest.optionalDependencies, ...manifest.peerDependencies };
  const files = listFiles(entry.folder, (path) => isModule(path) && !isOfTemplate(entry.folder, path));
  let numImports = 0;
  for (const file of files) {
    const forDevelopment = isDevelopmentFile(file);
    for (const use of moduleUses(file, readFileSync(join(entry.folder, file), 'utf8'))) {
      numImports += 1;
      const at = `${entry.location}/${file}:${use.line}`;
      if (use.specifier.startsWith('.')) {
        const resolved = posix.normalize(posix.join(posix.dirname(file), use.specifier));
        if (resolved.startsWith('..')) problems.push(`${at}: "${use.specifier}" leaves the package`);
        continue;
      }
      const name = packageOfSpecifier(use.specifier);
      if (name === undefined || name === entry.name) continue;
      const target = byName.get(name);
      if (!target) continue; // knip checks external packages.
      const declared = name in runtime || (forDevelopment && name in (manifest.devDependencies ?? {}));
      const reason = rule(target, forDevelopment);
      if (reason) problems.push(`${at}: imports "${name}": ${reason}`);
      else if (!declared) problems.push(`${at}: imports "${name}", which package.json does not declare for this use`);
    }
  }
  return numImports;
}
