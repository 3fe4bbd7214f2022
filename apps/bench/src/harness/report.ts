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

export class TextReport implements Report {
  readonly #write: (text: string) => void;
  /** The suite of the last figure. */
  #suite = '';

  constructor(write: (text: string) => void) {
    this.#write = write;
  }

  environment(environment: Environment): void {
    const { cpu, cpuFlags, cores, memoryGiB, system, node } = environment;
    this.#write(`${cpu}, ${cores} cores, ${memoryGiB} GiB, ${system}, Node ${node}\n`);
    this.#write(`${cpuFlags.join(' ')}\n`);
    const { commit, loadAverage, busyCores, backend, isNoisy } = environment;
    const load = `load average ${loadAverage}, ${busyCores} cores busy`;
    this.#write(`commit ${commit}, backend ${backend}, ${load}${isNoisy ? ': NOISY, figures are not evidence' : ''}\n`);
  }

  figure({ suite, case: name, value, best, unit, ratio, ratioOf }: Figure): void {
    if (suite !== this.#suite) {
      this.#suite = suite;
      this.#write(`\n${columns(suite, 'median', 'best', 'unit', 'ratio', 'of')}\n`);
    }
    this.#write(`${columns(name, short(value), short(best), unit, short(ratio), ratioOf)}\n`);
  }
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
