/** The recorded results: which projects ran with which inputs, and the table of the guide. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { hashInputs } from './inputs.ts';
import type { Project } from './project.ts';
import type { Result } from './run.ts';
import { layOut } from './table.ts';

/** A project that was ok. */
export interface Recorded {
  readonly versions: string;
  /** The steps that ran. */
  readonly ran: string;
  /** The day. */
  readonly date: string;
  readonly inputs: string;
}

/** By name of the project. */
export type Records = Readonly<Record<string, Recorded>>;

const recordPath = join('tools', 'integrations', 'results.json');
const guidePath = join('docs', 'guides', 'bundlers.md');
const [begin, end] = ['<!-- written by pnpm test:integrations --record -->', '<!-- end -->'];

export function readRecords(root: string): Records {
  const path = join(root, recordPath);
  return existsSync(path) ? (JSON.parse(readFileSync(path, 'utf8')) as Records) : {};
}

/** Those of every run, and those whose inputs differ from the recorded ones. */
export function changedProjects(root: string, projects: readonly Project[]): readonly Project[] {
  const records = readRecords(root);
  return projects.filter((project) => project.always || records[project.name]?.inputs !== hashInputs(root, project));
}

export function guideTable(records: Records): string {
  const rows = Object.entries(records).map(([name, { versions, ran, date }]) => [name, versions, ran, date]);
  const [head = [], ...body] = layOut(
    [['project', 'versions', 'what ran', 'on'], ...rows].map((row) => row.map(String)),
  );
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;
  return [line(head), line(head.map((cell) => '-'.repeat(cell.length))), ...body.map(line)].join('\n');
}

/** @throws {Error} when the guide has no place for the table */
export function withTable(guide: string, records: Records): string {
  const [from, to] = [guide.indexOf(begin), guide.indexOf(end)];
  if (from < 0 || to < from) throw new Error(`${guidePath}: no lines "${begin}" and "${end}"`);
  return `${guide.slice(0, from + begin.length)}\n\n${guideTable(records)}\n\n${guide.slice(to)}`;
}

/** Whether the guide shows what is recorded. */
export function guideIsCurrent(root: string): boolean {
  const guide = readFileSync(join(root, guidePath), 'utf8');
  return guide === withTable(guide, readRecords(root));
}

/** Programs of this machine that are no dependencies of a project. */
function versionsHere({ project, versions }: Result, chromium: string): string {
  const hasPage = project.steps.some((step) => !('run' in step));
  const usesNode = project.steps.some((step) => 'run' in step && step.generates === true && step.run[0] === 'node');
  const runsInNode = usesNode && !project.versions.includes('node');
  const node = `Node ${process.versions.node}`;
  return [...versions, ...(runsInNode ? [node] : []), ...(hasPage ? [chromium] : [])].join(', ');
}

function chromiumVersion(path: string): string {
  const output = execFileSync(path, ['--version'], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  return `Chromium ${/\d+/.exec(output)?.[0] ?? 'of unknown version'}`;
}

/** Adds the results that are ok to the records, and writes the table of the guide. */
export function record(root: string, results: readonly Result[], chromiumPath: string): void {
  const records: Record<string, Recorded> = { ...readRecords(root) };
  const chromium = chromiumVersion(chromiumPath);
  const date = new Date().toISOString().slice(0, 10);
  for (const result of results) {
    const { project, status, passed } = result;
    if (status !== 'ok') continue;
    const versions = versionsHere(result, chromium);
    records[project.name] = { versions, ran: passed.join(', '), date, inputs: hashInputs(root, project) };
  }
  const sorted = Object.fromEntries(Object.entries(records).sort(([a], [b]) => (a < b ? -1 : 1)));
  writeFileSync(join(root, recordPath), `${JSON.stringify(sorted, null, 2)}\n`);
  const guide = join(root, guidePath);
  writeFileSync(guide, withTable(readFileSync(guide, 'utf8'), sorted));
}
