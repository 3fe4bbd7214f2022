/** The workspace: its packages with their manifests, read from the folders of pnpm-workspace.yaml. */
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join, relative } from 'node:path';
import { parse } from 'yaml';

export interface Manifest {
  readonly name: string;
  readonly version?: string;
  readonly private?: boolean;
  readonly description?: string;
  readonly keywords?: readonly string[];
  readonly homepage?: string;
  readonly repository?: unknown;
  readonly type?: string;
  readonly license?: string;
  readonly sideEffects?: unknown;
  readonly engines?: Readonly<Record<string, string>>;
  readonly files?: readonly string[];
  readonly bin?: Readonly<Record<string, string>>;
  readonly exports?: Readonly<Record<string, unknown>>;
  readonly scripts?: Readonly<Record<string, string>>;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
  readonly peerDependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

export interface WorkspacePackage {
  /** `@winnow/tensor` */
  readonly name: string;
  /** `tensor`: the name in layers.json. */
  readonly shortName: string;
  readonly folder: string;
  /** `packages/tensor` */
  readonly location: string;
  readonly manifest: Manifest;
}

export interface Workspace {
  readonly root: string;
  readonly rootManifest: Manifest;
  readonly packages: readonly WorkspacePackage[];
  /** Versions by catalog and package; the default catalog has the empty name. */
  readonly catalogs: Readonly<Record<string, Readonly<Record<string, string>>>>;
}

/** Folders that all gates ignore. */
const ignoredFolders = new Set(['node_modules', 'dist', '.git', '.turbo', '.cache', '.toolchain', 'coverage']);

/** Temporary files of a concurrent build. */
const passingFile = /^tsup\.config\.bundled_\w+\.mjs$/;

export function readJson<T>(path: string): T {
  return JSON.parse(readFileSync(path, 'utf8')) as T;
}

/** A folder of sources. */
export type Place = Pick<WorkspacePackage, 'folder' | 'location'>;

/** The packages, and the folders beside them that have code. */
export function placesOf({ root, packages }: Workspace): Place[] {
  return [...packages, ...['scripts', '.changeset'].map((location) => ({ folder: join(root, location), location }))];
}

/** Manifest fields that list dependencies. */
export const dependencyFields = [
  'dependencies',
  'optionalDependencies',
  'peerDependencies',
  'devDependencies',
] as const;

/**
 * Reads the workspace at `root`.
 * @throws {Error} when pnpm-workspace.yaml selects no package: a gate that checks nothing must not pass
 */
export function readWorkspace(root: string): Workspace {
  const settings = parse(readFileSync(join(root, 'pnpm-workspace.yaml'), 'utf8')) as {
    packages?: string[];
    catalog?: Record<string, string>;
    catalogs?: Record<string, Record<string, string>>;
  };
  const packages: WorkspacePackage[] = [];
  for (const pattern of settings.packages ?? []) {
    for (const folder of expand(root, pattern)) {
      const path = join(folder, 'package.json');
      if (!existsSync(path)) continue;
      const manifest = readJson<Manifest>(path);
      const shortName = manifest.name.replace(/^@[^/]+\//, '');
      packages.push({ name: manifest.name, shortName, folder, location: slashed(relative(root, folder)), manifest });
    }
  }
  if (packages.length === 0) throw new Error(`no workspace package found below ${root}`);
  const rootManifest = readJson<Manifest>(join(root, 'package.json'));
  return { root, rootManifest, packages, catalogs: { ...settings.catalogs, '': settings.catalog ?? {} } };
}

/** `packages/*` or a plain folder; other patterns are not in use. */
function expand(root: string, pattern: string): string[] {
  if (!pattern.endsWith('/*')) return [join(root, pattern)];
  const parent = join(root, pattern.slice(0, -2));
  if (!existsSync(parent)) return [];
  return readdirSync(parent)
    .sort()
    .map((name) => join(parent, name))
    .filter((folder) => statSync(folder).isDirectory());
}

/** An entry of a package: an export path, and its host where hosts differ. */
export interface Entry {
  /** `.`, `./node`, or `. (node)` for the branch of a host. */
  readonly label: string;
  readonly types: string | undefined;
  readonly default: string;
}

type Conditions = string | { readonly [condition: string]: Conditions };

/** Built entries of `exports`, without plain files and sources. */
export function entriesOf(manifest: Manifest): Entry[] {
  const entries: Entry[] = [];
  const visit = (label: string, conditions: Readonly<Record<string, Conditions>>): void => {
    const { types, default: target } = conditions;
    if (typeof target === 'string') {
      entries.push({ label, types: typeof types === 'string' ? types : undefined, default: target });
    }
    for (const [condition, value] of Object.entries(conditions)) {
      if (condition === '@winnow/source' || typeof value === 'string') continue;
      visit(condition === 'default' ? label : `${label} (${condition})`, value);
    }
  };
  for (const [path, target] of Object.entries(manifest.exports ?? {})) {
    if (typeof target === 'object' && target !== null) visit(path, target as Record<string, Conditions>);
  }
  return entries;
}

export function slashed(path: string): string {
  return path.replaceAll('\\', '/');
}

/** All files below `folder`, relative and with slashes, without dependencies and build output. */
export function listFiles(folder: string, accept: (path: string) => boolean = () => true): string[] {
  const found: string[] = [];
  const visit = (path: string): void => {
    for (const entry of readdirSync(path, { withFileTypes: true })) {
      if (ignoredFolders.has(entry.name) || passingFile.test(entry.name)) continue;
      const child = join(path, entry.name);
      if (entry.isDirectory()) visit(child);
      else if (entry.isFile() && accept(slashed(relative(folder, child)))) found.push(slashed(relative(folder, child)));
    }
  };
  if (existsSync(folder)) visit(folder);
  return found.sort();
}

/** Code that is written in TypeScript or JavaScript. */
export function isScript(path: string): boolean {
  return /\.([cm]?[jt]s|[jt]sx)$/.test(path);
}

/** C and C++. */
export function isCpp(path: string): boolean {
  return /\.(c|cpp|h)$/.test(path);
}

/** A folder in a package with a manifest of its own is a template of a project, which has its own dependencies. */
export function isOfTemplate(folder: string, path: string): boolean {
  const parts = path.split('/').slice(0, -1);
  return parts.some((_, index) => existsSync(join(folder, ...parts.slice(0, index + 1), 'package.json')));
}

/** Python: in folders of fixtures, too, it is code. */
export function isPython(path: string): boolean {
  return path.endsWith('.py');
}

/** Code that is written by hand or generated, without test data. */
export function isSource(path: string): boolean {
  return isPython(path) || ((isScript(path) || isCpp(path)) && !isFixture(path));
}

/** Test data: not linted, formatted or scanned, but its origin must be documented. */
export function isFixture(path: string): boolean {
  return /(^|\/)(__fixtures__|test\/fixtures)\//.test(path);
}

/** Whether a path inside a package is only for tests, benchmarks or configuration, and never published as code. */
export function isDevelopmentFile(path: string): boolean {
  return !path.startsWith('src/') || /\.test(-d)?\.ts$/.test(path) || isFixture(path);
}
