/**
 * Three workers that answer prompts with common beginnings of 1,024 tokens, which come in random order: in the order of their
 * beginnings, and in that of the file. Needs the built command.
 * node apps/cli/scripts/measure/prefixes.ts [LINES] [ROUNDS] [sqlite|redis|postgres]
 */
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { createRng } from '@winnow/tensor';
import { lineOf, mean, openQueues, startWorkers, winnow } from './queue-runs.ts';

const [numLines = 960, numRounds = 2] = process.argv.slice(2, 4).map(Number);
const only = process.argv[4] ?? 'redis';
const linesPerBeginning = 10;
const beginningTokens = 1024;
const endTokens = 32;
/** At most seven beginnings fit the cache of a worker. */
const settings = ['--max-sessions', '4', '--kv-capacity', '8192'];
const folder = mkdtempSync(join(tmpdir(), 'winnow-prefixes-'));
const rng = createRng(7);

/** Ids of ordinary tokens of any vocabulary. */
const tokensOf = (count: number): number[] => Array.from({ length: count }, () => 50 + rng.nextInt(200));

function shuffledLines(): string {
  const beginnings = Array.from({ length: Math.ceil(numLines / linesPerBeginning) }, () => tokensOf(beginningTokens));
  const prompts = Array.from({ length: numLines }, (_, index) => {
    return [...(beginnings[Math.floor(index / linesPerBeginning)] as number[]), ...tokensOf(endTokens)];
  });
  for (let last = prompts.length - 1; last > 0; last--) {
    const other = rng.nextInt(last + 1);
    [prompts[last], prompts[other]] = [prompts[other] as number[], prompts[last] as number[]];
  }
  return prompts
    .map((prompt, index) => lineOf(index, '/v1/completions', { prompt, temperature: 0, max_tokens: 8 }))
    .join('');
}

interface Answered {
  readonly answered: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
}

/** @returns what the last line of a worker's output says */
async function endOf(worker: ChildProcess): Promise<Answered> {
  const [output] = await Promise.all([text(worker.stdout as NodeJS.ReadableStream), once(worker, 'exit')]);
  return JSON.parse(output.trimEnd().split('\n').at(-1) ?? '') as Answered;
}

let numRuns = 0;

/** @returns lines per second, and the share of prompt tokens that were in the cache */
async function run(queue: string, ...order: readonly string[]): Promise<{ rate: number; shared: number }> {
  const output = join(folder, `out-${numRuns++}.jsonl`);
  const startMs = performance.now();
  const batch = winnow('batch', join(folder, 'in.jsonl'), '--queue', queue, '-o', output, ...order);
  const workers = startWorkers(queue, ...settings, ...order, '--json');
  const ends = workers.map(endOf);
  await batch;
  const rate = (1000 * numLines) / (performance.now() - startMs);
  for (const worker of workers) worker.kill('SIGTERM');
  const all = await Promise.all(ends);
  const sum = (field: keyof Answered): number => all.reduce((total, each) => total + each[field], 0);
  if (sum('answered') !== numLines) throw new Error(`expected ${numLines} answers, got ${sum('answered')}`);
  return { rate, shared: sum('cachedTokens') / sum('promptTokens') };
}

const orders: readonly (readonly [name: string, flags: readonly string[]])[] = [
  ['by beginnings', []],
  ['of the file', ['--no-prefix-grouping']],
];
const queues = await openQueues(folder, only);
try {
  writeFileSync(join(folder, 'in.jsonl'), shuffledLines());
  for (const { name, url } of queues) {
    const rates = orders.map((): number[] => []);
    for (let round = 1; round <= numRounds; round++) {
      for (const [index, [order, flags]] of orders.entries()) {
        const { rate, shared } = await run(url(2 * round + index), ...flags);
        rates[index]?.push(rate);
        const share = `${(100 * shared).toFixed(0)} % of the prompt tokens from shared prefixes`;
        process.stdout.write(`round ${round}, ${name}, order ${order}: ${rate.toFixed(2)} lines/s, ${share}\n`);
      }
    }
    const ratio = mean(rates[0]) / mean(rates[1]);
    process.stdout.write(`${name}: ${ratio.toFixed(2)} times as many lines/s in the order by beginnings\n`);
  }
} finally {
  for (const queue of queues) await queue.stop();
  rmSync(folder, { recursive: true, force: true });
}
