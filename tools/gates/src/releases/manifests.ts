/** What registries show of a public package, and what it may depend on. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Manifest, Workspace, WorkspacePackage } from '../workspace/workspace.ts';

const repositoryUrl = 'https://github.com/winnow-ai/winnow';

/** The fields that npm installs for users. */
const installedFields = ['dependencies', 'optionalDependencies', 'peerDependencies'] as const;

export function isPublic({ manifest }: WorkspacePackage): boolean {
  return manifest.private !== true;
}

/** Checks the manifests of all public packages. */
export function checkManifests(workspace: Workspace): string[] {
  const byName = new Map(workspace.packages.map((entry) => [entry.name, entry]));
  return workspace.packages
    .filter(isPublic)
    .flatMap((entry) =>
      [...describedBy(entry), ...dependenciesOf(entry.manifest, byName)].map(
        (problem) => `${entry.location}/package.json: ${problem}`,
      ),
    );
}

function describedBy({ manifest, location, folder }: WorkspacePackage): string[] {
  const problems: string[] = [];
  const expect = (field: string, actual: unknown, expected: unknown): void => {
    if (JSON.stringify(actual) !== JSON.stringify(expected)) {
      problems.push(`"${field}" must be ${JSON.stringify(expected)}`);
    }
  };
  expect('homepage', manifest.homepage, `${repositoryUrl}/tree/main/${location}#readme`);
  expect('repository', manifest.repository, {
    type: 'git',
    url: `git+${repositoryUrl}.git`,
    directory: location,
  });
  if ((manifest.description ?? '') === '') problems.push('"description" is missing');
  if ((manifest.keywords ?? []).length < 2) problems.push('"keywords" must name at least two');
  if (manifest.scripts?.['gates'] === undefined) problems.push('script "gates" is missing');
  if (!existsSync(join(folder, 'README.md'))) problems.push('README.md is missing beside it');
  return problems;
}

/** Ranges let a user's packages share one copy of each; private packages cannot be installed at all. */
function dependenciesOf(manifest: Manifest, byName: ReadonlyMap<string, WorkspacePackage>): string[] {
  return installedFields.flatMap((field) =>
    Object.entries(manifest[field] ?? {}).flatMap(([name, range]) => {
      const target = byName.get(name);
      if (target === undefined) return [];
      if (!isPublic(target)) return [`${field} "${name}": the package is private, so nobody can install it`];
      return range === 'workspace:^' ? [] : [`${field} "${name}" must be "workspace:^", found "${range}"`];
    }),
  );
}
