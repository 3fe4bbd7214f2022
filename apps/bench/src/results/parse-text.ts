/** Parses the tables that the bench prints, with the preceding command, as stored in docs/benchmarks. */
import type { Figure } from '../harness/figure.js';
import type { Results, Run, RunEnvironment } from './results.js';

const machineLine = /^(?<cpu>.+), (?<cores>\d+) cores, (?<memory>[\d.]+) GiB, (?<system>.+), Node (?<node>\S+)$/;
const stateLine =
  /^commit (?<commit>\S+), backend (?<backend>\S+), load average (?<load>[\d.]+), (?<busy>[\d.]+) cores busy(?<noisy>: NOISY.*)?$/;
const headLine = /^(?<suite>\S+) +median +best unit +ratio +of$/;
const number = String.raw`-|-?\d[\d.]*(?:e[+-]?\d+)?`;
const figureLine = new RegExp(
  `^(?<case>.*?) +(?<value>${number}) +(?<best>${number}) (?<unit>\\S.*?) +(?<ratio>${number})  (?<of>.*)$`,
);

/** @throws {Error} that names the line of invalid text */
export function parseTextResults(text: string, source: string): Results {
  const runs = text
    .split(/^(?=\$ )/m)
    .filter((part) => part.trim() !== '')
    .flatMap((part) => parseCommand(part.trimEnd().split('\n'), source));
  return { runs };
}

/** The runs after a command: one, or several of the same command with other parameters. */
function parseCommand([command = '', ...lines]: readonly string[], source: string): Run[] {
  if (!command.startsWith('$ ')) throw new Error(`${source}: expected "$ " and a command, got "${command}"`);
  const begins = lines.flatMap((line, index) => (index === 0 || machineLine.test(line) ? [index] : []));
  return begins.map((begin, run) => parseRun(command.slice(2), lines.slice(begin, begins[run + 1]), source));
}

function parseRun(
  command: string,
  [machine = '', flags = '', state = '', ...lines]: readonly string[],
  source: string,
): Run {
  const figures: Figure[] = [];
  let suite: string | undefined;
  for (const line of lines) {
    if (line === '') continue;
    const head = headLine.exec(line)?.groups;
    if (head === undefined) figures.push(parseFigure(suite, line, source));
    else suite = head['suite'];
  }
  return { command, environment: parseEnvironment(machine, flags, state, source), figures };
}

function parseFigure(suite: string | undefined, line: string, source: string): Figure {
  const { case: caseName = '', value, best, unit = '', ratio, of = '' } = groups(figureLine, line, source);
  if (suite === undefined) throw new Error(`${source}: expected the head of a table before "${line}"`);
  return { suite, case: caseName, value: Number(value), best: Number(best), unit, ratio: Number(ratio), ratioOf: of };
}

function parseEnvironment(machine: string, flags: string, state: string, source: string): RunEnvironment {
  const { cpu = '', cores, memory, system = '', node = '' } = groups(machineLine, machine, source);
  const { commit = '', backend = '', load, busy, noisy } = groups(stateLine, state, source);
  return {
    kind: 'env',
    ...{
      cpu,
      cpuFlags: flags.split(' ').filter(Boolean),
      cores: Number(cores),
      memoryGiB: Number(memory),
      system,
      node,
    },
    ...{ commit, loadAverage: Number(load), busyCores: Number(busy), isNoisy: noisy !== undefined, backend },
  };
}

function groups(pattern: RegExp, line: string, source: string): Record<string, string | undefined> {
  const found = pattern.exec(line)?.groups;
  if (found === undefined) throw new Error(`${source}: expected a line of results, got "${line}"`);
  return found;
}
