/**
 * `pnpm fuzz [--minutes 5] [--inputs 1000] [--target gguf] [--seed 1] [--save]`: runs mutated inputs of every format. Only typed
 * errors are allowed; every other input is written to `found/` with the seed that makes it.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { readCorpus, saveInput } from './inputs.ts';
import { Supervisor } from './supervise.ts';
import { targetNames } from './targets.ts';

const folder = join(dirname(fileURLToPath(import.meta.url)), '..');
const { values } = parseArgs({
  options: {
    minutes: { type: 'string' },
    inputs: { type: 'string' },
    target: { type: 'string', multiple: true },
    seed: { type: 'string', default: '1' },
    save: { type: 'boolean', default: false },
  },
});

/** @throws {RangeError} */
function numberOf(name: string, text: string | undefined, fallback: number): number {
  const value = text === undefined ? fallback : Number(text);
  if (value > 0) return value;
  throw new RangeError(`--${name}: expected a positive number, got ${text}`);
}

function chosenTargets(): readonly string[] {
  const { target = targetNames } = values;
  const unknown = target.find((name) => !targetNames.includes(name));
  if (unknown === undefined) return target;
  throw new RangeError(`--target: expected ${targetNames.join(' | ')}, got ${unknown}`);
}

async function main(): Promise<number> {
  const targets = chosenTargets();
  const seed = numberOf('seed', values.seed, 1);
  const maxInputs = numberOf('inputs', values.inputs, Infinity);
  const minutes = numberOf('minutes', values.minutes, values.inputs === undefined ? 5 : Infinity);
  let numFindings = 0;
  const supervisor = new Supervisor();
  for (const name of targets) {
    const corpusPath = join(folder, 'corpus', `${name}.txt`);
    const { numInputs, numOutcomes, findings } = await supervisor.fuzz({
      module: new URL(`../test/targets/${name}.ts`, import.meta.url).href,
      corpus: readCorpus(corpusPath),
      ...{ seed, maxInputs, maxMs: (minutes * 60_000) / targets.length },
      onOutcome: (input) => values.save && saveInput(corpusPath, input),
    });
    process.stdout.write(
      `${name.padEnd(14)} ${numInputs} inputs, ${numOutcomes} outcomes, ${findings.length} findings\n`,
    );
    for (const { index, input, reason } of findings) {
      const path = join(folder, 'found', `${name}-${seed}-${index}`);
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, input);
      process.stdout.write(`  input ${index} of seed ${seed}, ${path}:\n    ${reason.replaceAll('\n', '\n    ')}\n`);
    }
    numFindings += findings.length;
  }
  await supervisor.close();
  return numFindings > 0 ? 1 : 0;
}

process.exitCode = await main().catch((error: unknown) => {
  process.stderr.write(`fuzz: ${error instanceof RangeError ? error.message : String((error as Error).stack)}\n`);
  return 2;
});
