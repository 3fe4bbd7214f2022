/** `npm test`: every package's tests through turbo, then one sum over all reports, cached ones included. */
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join, relative } from 'node:path';
import { recordBuild, sourceStamp } from './build-stamp.mjs';
import { budgetsMs, budgetText } from './budgets.mjs';
import { workspaceFolders } from './install.mjs';
import { withLock } from './lock.mjs';
import { root, say, seconds } from './log.mjs';
import { parseSelection } from './selection.mjs';
import { turbo } from './turbo.mjs';

/** Written by the vitest preset (packages/test-utils/vitest.mjs), restored by turbo for cached packages. */
const reportPath = join('node_modules', '.vitest-report.json');

/**
 * Their tests take longest. Turbo starts packages in an order of its own, so that one of these could end the run alone: the engine's, the
 * longest, then the rest run beside the others of these.
 */
const engine = '@winnow/engine';
const longest = ['backend-wasm', 'cli', 'browser-tests', 'gates', 'bench', 'server', 'convert', 'evaluation', 'grammar']
  .concat('tokenizers', 'fuzz')
  .map((name) => `@winnow/${name}`);

function testedFolders() {
  return workspaceFolders().filter((folder) => {
    const { scripts = {} } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    return folder !== root && scripts.test !== undefined;
  });
}

/**
 * @typedef {{ passed: number, failed: number, skipped: number }} Counts
 *
 * Counts of one vitest report. A file that failed before any test of it ran counts as one failure.
 * @returns {Counts & { failures: string[], skippedGroups: Map<string, { number: number, fullName: string }> }}
 */
export function countReport(report) {
  const failures = [];
  const counts = { passed: 0, failed: 0, skipped: 0, failures, skippedGroups: new Map() };
  for (const file of report.testResults ?? []) {
    let failedHere = 0;
    for (const test of file.assertionResults ?? []) {
      if (test.status === 'passed') counts.passed += 1;
      else if (test.status === 'failed') {
        failedHere += 1;
        const [firstLine = ''] = (test.failureMessages?.[0] ?? '').split('\n');
        failures.push(`${test.fullName ?? test.title}: ${firstLine}`);
      } else {
        counts.skipped += 1;
        const group = (test.ancestorTitles ?? []).join(' > ') || test.title;
        const { number = 0 } = counts.skippedGroups.get(group) ?? {};
        counts.skippedGroups.set(group, { number: number + 1, fullName: test.fullName ?? group });
      }
    }
    if (file.status === 'failed' && failedHere === 0) {
      failedHere = 1;
      failures.push(`${relative(root, file.name ?? '')}: ${(file.message ?? '').split('\n')[0]}`);
    }
    counts.failed += failedHere;
  }
  return counts;
}

/**
 * Sums the reports of the given folders and prints one line for each. A missing report counts as one failure.
 * @returns {Counts}
 */
export function summarize(folders, print) {
  const total = { passed: 0, failed: 0, skipped: 0 };
  for (const folder of folders) {
    const name = relative(root, folder);
    const file = join(folder, reportPath);
    if (!existsSync(file)) {
      total.failed += 1;
      print(`  ${name.padEnd(28)} no report: its tests did not run to their end`);
      continue;
    }
    const counts = countReport(JSON.parse(readFileSync(file, 'utf8')));
    if (counts.passed + counts.failed + counts.skipped === 0) counts.failed = 1; // No test file, or none could be read.
    for (const key of Object.keys(total)) total[key] += counts[key];
    print(`  ${name.padEnd(28)} ${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
    for (const failure of counts.failures) print(`      FAILED ${failure}`);
    for (const [group, { number, fullName }] of counts.skippedGroups) {
      print(`      skipped ${number}: ${number === 1 ? fullName : group}`);
    }
  }
  return total;
}

/**
 * Runs turbo with tasks that include `test`, alone, and sums the reports. Without `selected` all packages must report.
 *
 * @param chains beside each other, each the arguments of runs of turbo one after another
 * @param options `builds` are tasks to run before; the printed time does not include them
 * @returns {Promise<{ code: number, total: Counts }>} an exit code that is not 0, if there was one, and the sum
 */
export async function runWithReports(tools, chains, options) {
  const { selected, print, builds = [] } = options;
  return withLock('test', async () => {
    const builtFrom = sourceStamp();
    const folders = testedFolders();
    for (const folder of folders) rmSync(join(folder, reportPath), { force: true });
    let code = builds.length > 0 ? await turbo(tools, ['run', ...builds]) : 0;
    const startMs = Date.now();
    const runChain = async (runs) => {
      for (const turboArguments of runs) code = (await turbo(tools, ['run', ...turboArguments])) || code;
    };
    await Promise.all(chains.map(runChain));
    print(`tests (${seconds(startMs)}, ${budgetText(budgetsMs.test)}):`);
    const total = summarize(selected ? folders.filter((folder) => selected.has(folder)) : folders, print);
    if (code === 0 && selected === undefined) recordBuild(builtFrom);
    return { code, total };
  });
}

/** Exit code of a run: turbo's, or 1 when a test failed or none ran. */
export function exitCodeOf({ code, total }) {
  if (code !== 0) return code;
  return total.failed > 0 || total.passed === 0 ? 1 : 0;
}

export function closingLine({ passed, failed, skipped }) {
  return `${passed} passed, ${failed} failed, ${skipped} skipped`;
}

/** The chains with the tests of the filtered packages, or of all: the engine's and those that take less time, beside the longest. */
function testChains(filters, flags) {
  const options = ['--continue', '--output-logs=errors-only', ...flags];
  const numTasks = availableParallelism();
  // one more than there are cores: tests that wait for a browser or another process leave their core to others
  if (filters.length > 0) return [[['test', ...options, `--concurrency=${numTasks + 1}`, ...filters]]];
  const tests = longest.map((name) => `${name}#test`);
  const others = [engine, ...longest].map((name) => `--filter=!${name}`);
  return [
    [
      [`${engine}#test`, ...options],
      ['test', ...options, `--concurrency=${numTasks}`, ...others],
    ],
    [[...tests, ...options, `--concurrency=${numTasks}`]],
  ];
}

const usage = 'usage: npm test -- [--filter <package>] [--force]';

/** @param isFull whether to run every combination; tests read it as `testCoverage` of `@winnow/test-utils` */
export async function taskTest(tools, rest, isFull = false) {
  if (isFull) process.env.WINNOW_TEST = 'full';
  const { selected, names, filters, flags } = parseSelection(rest, ['--force'], usage);
  say(`running the tests of ${selected ? names.join(', ') : 'all packages'} (cached by turbo) ...`);
  const print = (line) => process.stdout.write(`${line}\n`);
  const builds = selected ? [] : ['build', 'compile', '--output-logs=errors-only', ...flags];
  const outcome = await runWithReports(tools, testChains(filters, flags), { selected, print, builds });
  if (outcome.total.passed + outcome.total.failed === 0) say('no test ran');
  if (outcome.code !== 0 && outcome.total.failed === 0) {
    say('a task failed outside its tests, counted as one failure; its output is above');
    outcome.total.failed = 1;
  }
  print(closingLine(outcome.total));
  return exitCodeOf(outcome);
}
