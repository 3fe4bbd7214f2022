/** Runs a project from its template to its result. */
import { missingChromium } from '@winnow/browser-tests/chromium';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { installedVersions, installProject } from './install.ts';
import type { Project } from './project.ts';
import { needsBrowser, runStep } from './steps.ts';

export interface Result {
  readonly project: Project;
  readonly status: 'ok' | 'failed' | 'skipped';
  readonly versions: readonly string[];
  readonly installMs: number;
  readonly runMs: number;
  /** Names of the steps that ran to their end. */
  readonly passed: readonly string[];
  /** Names of the steps that need a browser which is missing. */
  readonly skipped: readonly string[];
  /** What went wrong, and in which step. */
  readonly problem?: string;
}

export interface RunOptions {
  /** For npm: where the packed packages are. */
  readonly environment: Readonly<Record<string, string>>;
  /** Where fresh projects are made. */
  readonly folder: string;
  /** Leave the project there. */
  readonly keep: boolean;
  /** Why no browser can be started. */
  readonly missingBrowser?: string | undefined;
}

/** Never throws: what goes wrong is in the result. */
export async function runProject(project: Project, options: RunOptions): Promise<Result> {
  const { environment, folder, keep, missingBrowser = missingChromium } = options;
  const target = join(folder, project.name);
  const passed: string[] = [];
  const skipped: string[] = [];
  let versions: string[] = [];
  let problem: string | undefined;
  let at = 'install';
  const startMs = Date.now();
  let installedMs = startMs;
  try {
    await installProject(project, environment, target);
    versions = installedVersions(project, target);
    installedMs = Date.now();
    for (const step of project.steps) {
      at = step.name;
      if (missingBrowser !== undefined && needsBrowser(step)) skipped.push(step.name);
      else {
        await runStep(step, target, environment);
        passed.push(step.name);
      }
    }
  } catch (error) {
    problem = `${at}: ${error instanceof Error ? error.message : String(error)}`;
    if (at === 'install') installedMs = Date.now();
  }
  if (!keep) rmSync(target, { recursive: true, force: true });
  const status = problem !== undefined ? 'failed' : skipped.length > 0 ? 'skipped' : 'ok';
  const times = { installMs: installedMs - startMs, runMs: Date.now() - installedMs };
  return { project, status, versions, ...times, passed, skipped, ...(problem === undefined ? {} : { problem }) };
}
