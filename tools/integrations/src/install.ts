/** Makes a fresh project from a template, and installs its dependencies with npm as a user would. */
import { cpSync, existsSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { runToEnd } from './process.ts';
import type { Project } from './project.ts';

const root = join(import.meta.dirname, '..', '..', '..');

/**
 * @param environment makes npm find the packed packages
 * @throws {Error} with the output of npm when it fails
 */
export async function installProject(
  project: Project,
  environment: Readonly<Record<string, string>>,
  target: string,
): Promise<void> {
  cpSync(project.folder, target, { recursive: true });
  for (const path of project.copies ?? []) {
    const filter = (source: string): boolean => basename(source) !== 'node_modules';
    cpSync(join(root, path), join(target, path), { recursive: true, filter });
  }
  const flags = ['--no-audit', '--no-fund', '--no-package-lock', '--prefer-offline', '--loglevel=error'];
  await runToEnd(['npm', 'install', ...flags], { cwd: target, timeoutMs: 300_000, env: environment });
}

/** Versions of the installed dependencies that the project names. */
export function installedVersions(project: Project, target: string): string[] {
  return project.versions.map((name) => {
    const path = join(target, 'node_modules', name, 'package.json');
    if (!existsSync(path)) throw new Error(`npm did not install ${name}`);
    return `${name} ${(JSON.parse(readFileSync(path, 'utf8')) as { version: string }).version}`;
  });
}
