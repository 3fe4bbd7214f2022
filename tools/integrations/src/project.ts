/** Integration projects: the folders of `projects`, each with `package.json`, `integration.json` and sources. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** A program that ends. Names a program of the project's dependencies, or `node`. */
export interface RunStep {
  readonly name: string;
  readonly run: readonly string[];
  /** Whether the last line of its output is the generated text as JSON. */
  readonly generates?: boolean;
  readonly env?: Readonly<Record<string, string>>;
}

/** A server, started with `{port}` replaced by a free port, and a page whose `<output>` gets the generated text. */
export interface ServeStep {
  readonly name: string;
  readonly serve: readonly string[];
  /** Path of the page; default: the root. */
  readonly page?: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** A folder of files, served as they are, with a page like that of a server. */
export interface FolderStep {
  readonly name: string;
  readonly folder: string;
  /** Response headers, such as a content security policy. */
  readonly headers?: Readonly<Record<string, string>>;
}

export type Step = RunStep | ServeStep | FolderStep;

export interface Project {
  /** The name of its folder. */
  readonly name: string;
  readonly folder: string;
  /** Whether each `.ci/run` runs it; the others run when their inputs have changed. */
  readonly always: boolean;
  /** Globs of files beyond those that all projects depend on (`inputs.ts`). */
  readonly inputs?: readonly string[];
  /** Folders of the repository that the project gets, under the same names. */
  readonly copies?: readonly string[];
  /** The dependencies whose versions the table names. */
  readonly versions: readonly string[];
  readonly steps: readonly Step[];
}

interface Manifest {
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
}

function readJson(path: string): unknown {
  return JSON.parse(readFileSync(path, 'utf8'));
}

/**
 * Reads all projects below `folder`, sorted by name.
 * @throws {Error} when one is incomplete or does not pin its versions
 */
export function readProjects(folder: string): Project[] {
  const names = readdirSync(folder, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  return names.map(({ name }) => readProject(join(folder, name), name)).sort((a, b) => (a.name < b.name ? -1 : 1));
}

export function readProject(folder: string, name: string): Project {
  for (const file of ['package.json', 'integration.json', 'README.md']) {
    if (!existsSync(join(folder, file))) throw new Error(`projects/${name}: ${file} is missing`);
  }
  const settings = readJson(join(folder, 'integration.json')) as Omit<Project, 'name' | 'folder'>;
  const { dependencies = {}, devDependencies = {} } = readJson(join(folder, 'package.json')) as Manifest;
  const ranges = { ...dependencies, ...devDependencies };
  for (const [dependency, range] of Object.entries(ranges)) {
    const expected = dependency.startsWith('@winnow/') ? /^\*$/ : /^\d+\.\d+\.\d+$/;
    if (!expected.test(range)) {
      const rule = dependency.startsWith('@winnow/') ? '"*", whatever the workspace has' : 'an exact version';
      throw new Error(`projects/${name}: ${dependency} must have ${rule}, found "${range}"`);
    }
  }
  const unknown = settings.versions.filter((dependency) => ranges[dependency] === undefined);
  if (unknown.length > 0) throw new Error(`projects/${name}: does not depend on ${unknown.join(', ')}`);
  if (!settings.steps.some((step) => !('run' in step) || step.generates === true)) {
    throw new Error(`projects/${name}: no step generates text`);
  }
  return { ...settings, name, folder };
}

/** The named projects, in the order of `projects`; all of them without names. @throws {Error} for an unknown name */
export function selectProjects(projects: readonly Project[], names: readonly string[]): readonly Project[] {
  const known = projects.map(({ name }) => name);
  const unknown = names.filter((name) => !known.includes(name));
  if (unknown.length > 0) throw new Error(`no project "${unknown.join('", "')}"; there are ${known.join(', ')}`);
  return names.length === 0 ? projects : projects.filter(({ name }) => names.includes(name));
}
