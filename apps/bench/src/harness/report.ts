/** Prints results: a table that grows line by line, or one JSON object per line. */
import type { Environment } from './environment.js';
import type { Figure } from './figure.js';

export interface Report {
  environment(environment: Environment): void;
  figure(figure: Figure): void;
}

export function jsonReport(write: (text: string) => void): Report {
  const line = (value: unknown): void => write(`${JSON.stringify(value)}\n`);
  return { environment: line, figure: (figure) => line(rounded(figure)) };
}

export function textReport(write: (text: string) => void): Report {
  let suite = '';
  return {
    environment({ cpu, cpuFlags, cores, memoryGiB, system, node, commit, loadAverage, busyCores, backend, isNoisy }) {
      write(`${cpu}, ${cores} cores, ${memoryGiB} GiB, ${system}, Node ${node}\n`);
      write(`${cpuFlags.join(' ')}\n`);
      const load = `load average ${loadAverage}, ${busyCores} cores busy`;
      write(`commit ${commit}, backend ${backend}, ${load}${isNoisy ? ': NOISY, figures are not evidence' : ''}\n`);
    },
    figure(figure) {
      if (figure.suite !== suite) {
        suite = figure.suite;
        write(`\n${columns(suite, 'median', 'best', 'unit', 'ratio', 'of')}\n`);
      }
      const { value, best, unit, ratio, ratioOf } = figure;
      write(`${columns(figure.case, short(value), short(best), unit, short(ratio), ratioOf)}\n`);
    },
  };
}

function columns(name: string, value: string, best: string, unit: string, ratio: string, ratioOf: string): string {
  const numbers = `${value.padStart(9)} ${best.padStart(9)} ${unit.padEnd(11)} ${ratio.padStart(7)}`;
  return `${name.padEnd(52)} ${numbers}  ${ratioOf}`;
}

/** Four significant digits; counts unchanged. */
export function short(value: number): string {
  if (Number.isSafeInteger(value)) return String(value);
  return Number.isFinite(value) ? `${Number(value.toPrecision(4))}` : '-';
}

/** Six significant digits: more would be noise. Counts are exact. */
function rounded(figure: Figure): Figure {
  const { value, best, ratio } = figure;
  return { ...figure, value: digits(value), best: digits(best), ratio: digits(ratio) };
}

function digits(value: number): number {
  return Number.isSafeInteger(value) ? value : Number(value.toPrecision(6));
}
