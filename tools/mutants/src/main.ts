/**
 * `pnpm mutants [--filter package] [--sample 5] [--seed text]`: plants defects one at a time; every one must be caught.
 */
import { availableParallelism } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { mutants } from './mutants.ts';
import { packageOf, problemsOf, type Mutant } from './mutant.ts';
import { failingTests, runMutant, type Outcome } from './run.ts';
import { chooseSample } from './sample.ts';
import { createScratch } from './scratch.ts';

const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..', '..');
const { values } = parseArgs({
  options: {
    filter: { type: 'string', multiple: true },
    sample: { type: 'string' },
    seed: { type: 'string', default: '' },
    jobs: { type: 'string', default: String(Math.max(1, Math.floor(availableParallelism() / 2))) },
  },
});

function chosenMutants(): readonly Mutant[] {
  const { filter, sample, seed } = values;
  const wanted = mutants.filter(({ file }) => {
    const folder = packageOf(file);
    return filter === undefined || filter.some((name) => folder.endsWith(`/${name.replace('@winnow/', '')}`));
  });
  return sample === undefined ? wanted : chooseSample(wanted, Number(sample), seed);
}

/** Each job has its own copy and takes the next mutant. */
async function runAll(chosen: readonly Mutant[], shared: string): Promise<Map<Mutant, Outcome>> {
  const outcomes = new Map<Mutant, Outcome>();
  const waiting = [...chosen];
  const work = async (): Promise<void> => {
    const scratch = createScratch(root);
    try {
      for (let mutant = waiting.shift(); mutant !== undefined; mutant = waiting.shift()) {
        const startMs = Date.now();
        const outcome = await runMutant({ scratch: scratch.folder, shared }, mutant);
        outcomes.set(mutant, outcome);
        const seconds = ((Date.now() - startMs) / 1000).toFixed(1);
        process.stdout.write(`${outcome.padEnd(8)} ${seconds.padStart(5)} s  ${mutant.file}: ${mutant.replace}\n`);
      }
    } finally {
      scratch.dispose();
    }
  };
  await Promise.all(Array.from({ length: Math.min(chosen.length, Number(values.jobs)) }, work));
  return outcomes;
}

async function main(): Promise<number> {
  const chosen = chosenMutants();
  const problems = chosen.flatMap((mutant) => problemsOf(root, mutant));
  for (const problem of problems) process.stderr.write(`${problem}\n`);
  if (problems.length > 0 || chosen.length === 0) return 2;
  const shared = resolve(process.env['WINNOW_SHARED'] ?? join(root, '..', 'shared'));
  const outcomes = await runAll(chosen, shared);
  const survivors = chosen.filter((mutant) => outcomes.get(mutant) !== 'caught');
  process.stdout.write(`${chosen.length - survivors.length} of ${chosen.length} caught\n`);
  for (const { file, find, replace } of survivors) process.stdout.write(`  SURVIVED ${file}: ${find} -> ${replace}\n`);
  const scratch = createScratch(root);
  try {
    const failing = await failingTests({ scratch: scratch.folder, shared }, chosen);
    if (failing.length > 0) process.stderr.write(`tests of ${failing.join(', ')} fail without a defect\n`);
    return survivors.length > 0 || failing.length > 0 ? 1 : 0;
  } finally {
    scratch.dispose();
  }
}

process.exitCode = await main();
