/**
 * `pnpm test:integrations [NAMES] [--changed] [--record] [--keep]`: packs the public packages, installs them into fresh
 * projects, builds and runs these.
 */
import { chromiumPath, missingChromium } from '@winnow/browser-tests/chromium';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { packAll } from './archives.ts';
import { readProjects, selectProjects, type Project } from './project.ts';
import { changedProjects, record } from './record.ts';
import { startRegistry } from './registry.ts';
import { runProject, type Result } from './run.ts';
import { resultLines } from './table.ts';

const here = join(dirname(fileURLToPath(import.meta.url)), '..');
const root = join(here, '..', '..');
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    // only those of every run, and those whose inputs have changed since they were recorded
    changed: { type: 'boolean', default: false },
    // write the results and the table of the guide
    record: { type: 'boolean', default: false },
    // leave the fresh projects
    keep: { type: 'boolean', default: false },
  },
});

async function runAll(projects: readonly Project[], folder: string): Promise<Result[]> {
  const target = join(folder, 'archives');
  mkdirSync(target);
  const registry = await startRegistry(packAll(root, target));
  try {
    const results: Result[] = [];
    for (const project of projects) {
      process.stderr.write(`${project.name} ...\n`);
      results.push(await runProject(project, { environment: registry.environment, folder, keep: values.keep }));
    }
    return results;
  } finally {
    await registry.close();
  }
}

async function main(): Promise<number> {
  const named = selectProjects(readProjects(join(here, 'projects')), positionals);
  const projects = values.changed ? changedProjects(root, named) : named;
  const folder = mkdtempSync(join(tmpdir(), 'winnow-integrations-'));
  try {
    const results = await runAll(projects, folder);
    for (const line of resultLines(results, missingChromium)) process.stdout.write(`${line}\n`);
    if (values.record && missingChromium === undefined) record(root, results, chromiumPath);
    return results.some(({ status }) => status === 'failed') ? 1 : 0;
  } finally {
    if (values.keep) process.stderr.write(`the projects are in ${folder}\n`);
    else rmSync(folder, { recursive: true, force: true });
  }
}

process.exitCode = await main();
