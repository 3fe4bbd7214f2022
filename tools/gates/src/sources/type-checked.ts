/**
 * Every file of TypeScript and JavaScript is in a tsconfig.json that the script `typecheck` of some package reads, so that
 * no folder escapes the compiler. AssemblyScript has a compiler of its own, templates of projects have their own settings.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import {
  isFixture,
  isOfTemplate,
  isScript,
  listFiles,
  type Workspace,
  type WorkspacePackage,
} from '../workspace/workspace.ts';

interface CompilerSettings {
  readonly compilerOptions?: { readonly allowJs?: boolean };
  readonly include?: readonly string[];
  readonly files?: readonly string[];
}

/** Which files, relative to the root, a program of the compiler reads. */
type Selection = (file: string) => boolean;

export function checkTypeChecked(workspace: Workspace): string[] {
  const selections = workspace.packages.flatMap(selectionsOf);
  const inTemplate = (path: string): boolean =>
    workspace.packages.some(
      ({ folder, location }) =>
        path.startsWith(`${location}/`) && isOfTemplate(folder, path.slice(location.length + 1)),
    );
  const isChecked = (path: string): boolean =>
    isScript(path) && !isFixture(path) && !/(^|\/)assembly\//.test(path) && !inTemplate(path);
  const files = listFiles(workspace.root, isChecked);
  if (files.length === 0) return ['type check: no file of TypeScript was found, so nothing was checked'];
  return files
    .filter((file) => !selections.some((selects) => selects(file)))
    .map((file) => `${file}: no script "typecheck" reads it: "include" of a tsconfig.json has to name it`);
}

function selectionsOf({ folder, location, manifest }: WorkspacePackage): Selection[] {
  const projects = [...(manifest.scripts?.['typecheck'] ?? '').matchAll(/\btsc -p (\S+)/g)].map(
    ([, path]) => path ?? '',
  );
  return projects
    .filter((path) => existsSync(join(folder, path)))
    .map((path) => {
      const settings = readSettings(join(folder, path));
      const at = posix.join(location, posix.dirname(path));
      const named = [...(settings.include ?? []), ...(settings.files ?? [])];
      const patterns = named.map((pattern) => patternOf(posix.join(at, pattern)));
      const extension = settings.compilerOptions?.allowJs === true ? /\.[cm]?[jt]sx?$/ : /\.[cm]?tsx?$/;
      return (file) => extension.test(file) && patterns.some((pattern) => pattern.test(file));
    });
}

/** JSON with lines of comments. */
function readSettings(path: string): CompilerSettings {
  return JSON.parse(readFileSync(path, 'utf8').replaceAll(/^\s*\/\/.*$/gm, '')) as CompilerSettings;
}

/** A folder stands for all that it contains. */
function patternOf(path: string): RegExp {
  const isFolder = !/\.[cm]?[jt]sx?$/.test(path);
  const escaped = path
    .replaceAll(/[.+()[\]]/g, '\\$&')
    .replaceAll('*', '[^/]*')
    .replaceAll('[^/]*[^/]*/', '(?:.*/)?');
  return new RegExp(`^${escaped}${isFolder ? '/.*' : ''}$`);
}
