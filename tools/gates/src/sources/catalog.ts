/** Versions live in one place: external packages come from the catalog, our own from the workspace. */
import { dependencyFields, type Manifest, type Workspace } from '../workspace/workspace.ts';

export function checkCatalog(workspace: Workspace): string[] {
  const problems: string[] = [];
  const own = new Set(workspace.packages.map((entry) => entry.name));
  const used = new Set<string>();
  const check = (where: string, manifest: Manifest): void => {
    for (const field of dependencyFields) {
      for (const [name, range] of Object.entries(manifest[field] ?? {})) {
        const isOwn = own.has(name);
        if (!isOwn && range.startsWith('catalog:')) used.add(`${range.slice(8)} ${name}`);
        if (isOwn && !range.startsWith('workspace:')) {
          problems.push(`${where}: ${field} "${name}" must come from the workspace, found "${range}"`);
        } else if (!isOwn && field !== 'peerDependencies' && !range.startsWith('catalog:')) {
          problems.push(`${where}: ${field} "${name}" must be "catalog:", found "${range}"`);
        }
        if (range.startsWith('catalog:') && workspace.catalogs[range.slice(8)]?.[name] === undefined) {
          problems.push(`${where}: ${field} "${name}" is not in the catalog of pnpm-workspace.yaml`);
        }
      }
    }
  };
  check('package.json', workspace.rootManifest);
  for (const entry of workspace.packages) check(`${entry.location}/package.json`, entry.manifest);
  for (const [catalog, entries] of Object.entries(workspace.catalogs)) {
    for (const name of Object.keys(entries)) {
      if (!used.has(`${catalog} ${name}`))
        problems.push(`pnpm-workspace.yaml: nothing uses the catalog entry "${name}"`);
    }
  }
  return problems;
}
