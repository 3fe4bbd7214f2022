/** `pnpm check`: every gate through turbo, then a table of gates. `--filter` is the inner loop of one package. */
import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { join, relative } from 'node:path';
import { toolEnvironment } from './environment.mjs';
import { root, say, seconds } from './log.mjs';
import { runThrough } from './process.mjs';
import { parseSelection } from './selection.mjs';
import { budgetRow, budgetsMs, budgetText } from './budgets.mjs';
import { closingLine, exitCodeOf, runWithReports } from './test.mjs';
import { turbo } from './turbo.mjs';

const usage = 'usage: pnpm check [--filter <package>] [--force] [--update]';
const rootGates = ['gate:format', 'gate:lint', 'gate:knip', 'gate:workspace', 'gate:documents', 'gate:changesets'];
const packageGates = ['typecheck', 'build', 'test', 'gates'];
const runsFolder = join(root, '.turbo', 'runs');

function runSummaries() {
  try {
    return readdirSync(runsFolder).filter((file) => file.endsWith('.json'));
  } catch {
    return [];
  }
}

/** One line for each gate: how many packages passed, which failed, how many came from the cache, how long the rest took. */
function printTable(tasks, print) {
  const gates = new Map();
  for (const task of tasks) {
    if (task.task === 'transit' || (task.command ?? '<NONEXISTENT>') === '<NONEXISTENT>') continue;
    const row = gates.get(task.task) ?? { passed: 0, cached: 0, failed: [], timeMs: 0 };
    const isCached = task.cache?.status === 'HIT';
    if (isCached || task.execution?.exitCode === 0) row.passed += 1;
    else row.failed.push(task.package === '//' ? 'root' : task.package);
    if (isCached) row.cached += 1;
    else row.timeMs += (task.execution?.endTime ?? 0) - (task.execution?.startTime ?? 0);
    gates.set(task.task, row);
  }
  print('gates:');
  for (const [name, { passed, cached, failed, timeMs }] of gates) {
    const verdict = failed.length === 0 ? 'ok    ' : 'FAILED';
    const where = failed.length === 0 ? '' : `  ${failed.join(', ')}`;
    const time = `${(timeMs / 1000).toFixed(1)} s`.padStart(8);
    print(`  ${verdict} ${name.replace('gate:', '').padEnd(12)} ${time}  ${passed} passed (${cached} cached)${where}`);
  }
}

/** Wall time from the first test task to the last; those from the cache take none. */
function testTimeMs(tasks) {
  const ran = tasks.filter(({ task, cache, execution }) => task === 'test' && cache?.status !== 'HIT' && execution);
  if (ran.length === 0) return 0;
  const begin = Math.min(...ran.map(({ execution }) => execution.startTime));
  return Math.max(...ran.map(({ execution }) => execution.endTime)) - begin;
}

/** Lines of files, functions and kernels compared with their limits, then the times. Gates hold the former; nothing fails by time. */
async function printBudgets(tools, selected, times, print) {
  print('budgets:');
  const main = join(root, 'tools', 'gates', 'src', 'main.ts');
  const locations = [...(selected ?? [])].map((folder) => relative(root, folder));
  await runThrough(tools.node, [main, 'budgets', ...locations], { cwd: root, env: toolEnvironment(tools) });
  for (const [name, timeMs, budgetMs] of times) print(budgetRow(name, timeMs, budgetMs));
}

/** Rewrites the API snapshots of the selected packages. */
async function update(tools, selected, filters) {
  const code = await turbo(tools, ['run', 'build', '--output-logs=errors-only', ...filters]);
  if (code !== 0) return code;
  const main = join(root, 'tools', 'gates', 'src', 'main.ts');
  const folders = [...(selected ?? [])].map((folder) => relative(root, folder));
  return runThrough(tools.node, [main, 'update', ...folders], { cwd: root, env: toolEnvironment(tools) });
}

/** The root gates for some folders only: too quick to be worth caching. Resolves to the first exit code that is not 0. */
async function checkFolders(tools, folders) {
  const locations = folders.map((folder) => relative(root, folder));
  const modules = join(root, 'node_modules');
  const gates = join(root, 'tools', 'gates', 'src', 'main.ts');
  const programs = [
    [join(modules, 'oxfmt', 'bin', 'oxfmt'), '--check', ...locations],
    [join(modules, 'oxlint', 'bin', 'oxlint'), '--deny-warnings', ...locations],
    [gates, 'workspace', ...locations],
    ...(locations.includes('packages/native') ? [[gates, 'cpp-format']] : []),
  ];
  let result = 0;
  for (const program of programs) {
    const code = await runThrough(tools.node, program, { cwd: root, env: toolEnvironment(tools) });
    result ||= code;
  }
  return result;
}

export async function taskCheck(tools, rest) {
  const { selected, filters, flags } = parseSelection(rest, ['--force', '--update'], usage);
  if (flags.includes('--update')) return update(tools, selected, filters);
  const print = (line) => process.stdout.write(`${line}\n`);
  const startMs = Date.now();
  say(
    'checking: format, lint, types, layers, structure, knip, tests, build, packages, API, size, documents, examples, docs ...',
  );
  const codeOfScripts = selected ? await checkFolders(tools, [...selected]) : 0;
  const tasks = selected ? packageGates : [...rootGates, ...packageGates, 'docs', 'examples'];
  const before = new Set(runSummaries());
  const options = ['--continue', '--output-logs=errors-only', '--summarize', ...filters, ...flags];
  const outcome = await runWithReports(tools, [[[...tasks, ...options]]], { selected, print });
  const times = [];
  for (const file of runSummaries().filter((name) => !before.has(name))) {
    const { tasks: ran } = JSON.parse(readFileSync(join(runsFolder, file), 'utf8'));
    printTable(ran, print);
    times.push(['seconds of tests, with other tasks', testTimeMs(ran), budgetsMs.test]);
    rmSync(join(runsFolder, file), { force: true });
  }
  const code = exitCodeOf(outcome) || codeOfScripts;
  const budgetMs = selected ? budgetsMs.checkOfPackage : budgetsMs.check;
  times.push(['seconds of this check', Date.now() - startMs, budgetMs]);
  await printBudgets(tools, selected, times, print);
  print(`check ${code === 0 ? 'passed' : 'FAILED'} after ${seconds(startMs)}, ${budgetText(budgetMs)}`);
  print(closingLine(outcome.total));
  return code;
}
