/** What decides whether a project may behave differently from when it was recorded: the files that bundlers and hosts see. */
import { createHash } from 'node:crypto';
import { globSync, readFileSync } from 'node:fs';
import { join, matchesGlob, sep } from 'node:path';
import { listFiles } from '@winnow/gates/workspace';
import type { Project } from './project.ts';

/** Manifests, builds, and code that differs between hosts. */
const commonInputs: readonly string[] = [
  'pnpm-workspace.yaml',
  'packages/*/package.json',
  'packages/*/tsup.config.mjs',
  'packages/test-utils/tsup.mjs',
  'packages/*/src/**/*.{node,browser}.ts',
  'packages/backend-wasm/src/host/*.ts',
  'packages/demo-model/src/*.ts',
  'packages/engine/src/load/{location,open-location}.ts',
];

/** Built files, which git does not list: declarations follow from any source, however deep. */
function declarations(root: string): string[] {
  return globSync('packages/*/dist/**/*.d.ts', { cwd: root })
    .map((path) => path.replaceAll(sep, '/'))
    .sort();
}

/** Whether a change of the file may change what a project does; that of a test does not. */
function isInput(path: string, globs: readonly string[]): boolean {
  return !path.endsWith('.test.ts') && globs.some((glob) => matchesGlob(path, glob));
}

/** A hash of the names and contents of the files that the project depends on. */
export function hashInputs(root: string, project: Project): string {
  const paths = [...listFiles(root), ...declarations(root)];
  const globs = [...commonInputs, ...(project.inputs ?? []), `tools/integrations/projects/${project.name}/**`];
  const hash = createHash('sha256');
  for (const path of paths) {
    if (isInput(path, globs))
      hash
        .update(`${path}\0`)
        .update(readFileSync(join(root, path)))
        .update('\0');
  }
  return hash.digest('hex').slice(0, 16);
}
