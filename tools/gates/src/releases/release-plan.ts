/**
 * Whether `changeset status` and `changeset version` succeed. They run in a copy of the manifests with a history of its own,
 * so that the result does not depend on what a clone has of the real one.
 */
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { programOf, runProgram } from '../workspace/run.ts';
import { readJson, type Manifest, type Workspace } from '../workspace/workspace.ts';
import { isPublic } from './manifests.ts';

const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..', '..', '..');

/** Author of the only commit of the copy. */
const author = ['-c', 'user.name=Winnow', '-c', 'user.email=release@example.com', '-c', 'commit.gpgsign=false'];

/** Packages whose changelog has no entry after `changeset version`, and what either command complains about. */
export function checkReleasePlan(workspace: Workspace): string[] {
  const copy = mkdtempSync(join(tmpdir(), 'winnow-release-plan-'));
  try {
    copyManifests(workspace, copy);
    return (
      ['status', 'version'].map((command) => runChangeset(command, copy)).find(([problem]) => problem) ??
      missingEntries(workspace, copy)
    );
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
}

function copyManifests(workspace: Workspace, copy: string): void {
  const folders = workspace.packages.map(({ location }) => `${location}/package.json`);
  for (const path of ['package.json', 'pnpm-workspace.yaml', '.changeset', ...folders]) {
    if (!existsSync(join(workspace.root, path))) continue;
    mkdirSync(dirname(join(copy, path)), { recursive: true });
    cpSync(join(workspace.root, path), join(copy, path), { recursive: true });
  }
  for (const words of [
    ['init', '-q', '-b', 'main'],
    ['add', '.'],
    [...author, 'commit', '-q', '-m', 'Copy the manifests'],
  ]) {
    const outcome = runProgram('git', words, { cwd: copy });
    if (outcome.code !== 0) throw new Error(`git ${words.join(' ')}: ${outcome.output}`);
  }
}

function runChangeset(command: string, cwd: string): string[] {
  const program = programOf('@changesets/cli', 'changeset', root);
  const { code, output } = runProgram(process.execPath, [program, command], { cwd });
  return code === 0 ? [] : [`changeset ${command} fails:\n${output.trim()}`];
}

/** Each package whose version went up says why. */
function missingEntries(workspace: Workspace, copy: string): string[] {
  const problems: string[] = [];
  for (const { folder, location, manifest } of workspace.packages.filter(isPublic)) {
    const { version } = readJson<Manifest>(join(copy, location, 'package.json'));
    if (version === manifest.version) {
      if (version === '0.0.0') problems.push(`${location}: no changeset releases it`);
      continue;
    }
    const changelog = join(copy, location, 'CHANGELOG.md');
    const text = existsSync(changelog) ? readFileSync(changelog, 'utf8') : '';
    if (!text.includes(`## ${version}`)) problems.push(`${folder}: the changelog has no entry for ${version}`);
  }
  return problems;
}
