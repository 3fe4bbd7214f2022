/** Every change to the sources of a public package brings a changeset that names it. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';
import { isPublic } from './manifests.ts';
import { runProgram } from '../workspace/run.ts';
import { isDevelopmentFile, type Workspace } from '../workspace/workspace.ts';

export interface ChangesetReport {
  readonly problems: string[];
  readonly notes: string[];
}

interface Changeset {
  readonly file: string;
  readonly bumps: ReadonlyMap<string, string>;
}

/** Reads the pending changesets and reports malformed ones. */
export function readChangesets(workspace: Workspace, problems: string[]): Changeset[] {
  const folder = join(workspace.root, '.changeset');
  const names = new Set(workspace.packages.map(({ name }) => name));
  const changesets: Changeset[] = [];
  const files = existsSync(folder) ? readdirSync(folder).filter((file) => /(?<!README)\.md$/.test(file)) : [];
  for (const file of files) {
    const match = /^---\r?\n([\s\S]*?)\r?\n---\r?\n([\s\S]*)$/.exec(readFileSync(join(folder, file), 'utf8'));
    if (!match) {
      problems.push(`.changeset/${file}: no front matter between --- lines`);
      continue;
    }
    const bumps = new Map(Object.entries((parse(match[1] ?? '') ?? {}) as Record<string, string>));
    for (const [name, bump] of bumps) {
      if (!names.has(name)) problems.push(`.changeset/${file}: "${name}" is not a package of the workspace`);
      if (!['major', 'minor', 'patch'].includes(bump)) problems.push(`.changeset/${file}: unknown bump "${bump}"`);
    }
    if ((match[2] ?? '').trim() === '') problems.push(`.changeset/${file}: does not describe the change`);
    changesets.push({ file: `.changeset/${file}`, bumps });
  }
  return changesets;
}

/** Checks what changed since `base` left the main line (default: the remote's main line, then a local `main`). */
export function checkChangesets(
  workspace: Workspace,
  base: string | undefined = process.env['WINNOW_BASE'],
): ChangesetReport {
  const report: ChangesetReport = { problems: [], notes: [] };
  const changesets = readChangesets(workspace, report.problems);
  const git = (...words: string[]): string | undefined => {
    const outcome = runProgram('git', words, { cwd: workspace.root });
    return outcome.code === 0 ? outcome.output.trim() : undefined;
  };
  if (git('rev-parse', '--is-inside-work-tree') !== 'true') {
    report.notes.push('no git checkout: changes are not compared with changesets');
    return report;
  }
  const candidates = base === undefined ? ['origin/HEAD', 'origin/main', 'main'] : [base];
  const found = candidates.find((name) => git('rev-parse', '--verify', '--quiet', `${name}^{commit}`) !== undefined);
  const mergeBase = found && git('merge-base', 'HEAD', found);
  if (!mergeBase) {
    report.notes.push(
      `no common ancestor with ${candidates.join(', ')} in this clone: only uncommitted changes are checked`,
    );
  }
  // Compared with the working tree, and with untracked files.
  const changed = new Set([
    ...(git('diff', '--name-only', mergeBase || 'HEAD') ?? '').split('\n'),
    ...(git('ls-files', '--others', '--exclude-standard') ?? '').split('\n'),
  ]);
  const covered = new Set<string>();
  for (const { file, bumps } of changesets) {
    if (changed.has(file)) for (const name of bumps.keys()) covered.add(name);
  }
  for (const entry of workspace.packages) {
    if (!isPublic(entry) || covered.has(entry.name)) continue;
    const prefix = `${entry.location}/`;
    const files = [...changed].filter(
      (file) => file.startsWith(`${prefix}src/`) && !isDevelopmentFile(file.slice(prefix.length)),
    );
    if (files.length > 0) {
      report.problems.push(`${entry.name} changed (${files[0]}) without a changeset; add one with "pnpm changeset"`);
    }
  }
  return report;
}
