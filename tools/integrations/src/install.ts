/** Makes a fresh project from a template, and installs the archives with npm as a user would. */
import { cpSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Archives } from './archives.ts';
import { runToEnd } from './process.ts';
import type { Project } from './project.ts';

interface Manifest {
  readonly name: string;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly [field: string]: unknown;
}

/**
 * The manifest with archives in place of the packages of the workspace. Overrides do the same for their dependencies on
 * each other, which no registry has yet.
 * @throws {Error} when it depends on a package that is not public
 */
export function withArchives(manifest: Manifest, archives: Archives): Manifest {
  const specOf = (name: string): string => {
    const archive = archives.get(name);
    if (archive === undefined) throw new Error(`${manifest.name}: ${name} is not a public package of the workspace`);
    return `file:${archive}`;
  };
  const dependencies = Object.entries(manifest.dependencies ?? {}).map(([name, range]) => [
    name,
    name.startsWith('@winnow/') ? specOf(name) : range,
  ]);
  const overrides = Object.fromEntries([...archives.keys()].map((name) => [name, specOf(name)]));
  return { ...manifest, dependencies: Object.fromEntries(dependencies), overrides };
}

/** @throws {Error} with the output of npm when it fails */
export async function installProject(project: Project, archives: Archives, target: string): Promise<void> {
  cpSync(project.folder, target, { recursive: true });
  const path = join(target, 'package.json');
  const manifest = JSON.parse(readFileSync(path, 'utf8')) as Manifest;
  writeFileSync(path, `${JSON.stringify(withArchives(manifest, archives), null, 2)}\n`);
  const flags = ['--no-audit', '--no-fund', '--no-package-lock', '--prefer-offline', '--loglevel=error'];
  await runToEnd(['npm', 'install', ...flags], { cwd: target, timeoutMs: 300_000 });
}

/** Versions of the installed dependencies that the project names. */
export function installedVersions(project: Project, target: string): string[] {
  return project.versions.map((name) => {
    const path = join(target, 'node_modules', name, 'package.json');
    if (!existsSync(path)) throw new Error(`npm did not install ${name}`);
    return `${name} ${(JSON.parse(readFileSync(path, 'utf8')) as { version: string }).version}`;
  });
}
