/** What a suite is: a name and a run that gives figures as they are measured. */
import type { Backend } from '@winnow/ops';
import type { Machine } from '../roofline/machine.js';
import type { Place } from './backends.js';
import type { Figure } from './figure.js';
import type { MeasureOptions } from './measure.js';
import type { BenchOptions } from './options.js';
import type { AddPoint } from './plots.js';

export interface SuiteContext {
  readonly options: BenchOptions;
  readonly machine: Machine;
  createBackend(threads: number, place: Place): Promise<Backend>;
  /** Tells of processor time that a process of ours has used. */
  addOwnMs(ms: number): void;
  /** Progress for people; not part of the result. */
  say(text: string): void;
  /** For the plots that `--plots` asks for; does nothing otherwise. */
  readonly plot: AddPoint;
}

export interface Suite {
  readonly name: string;
  readonly summary: string;
  run(context: SuiteContext): AsyncIterable<Figure>;
}

/** Rounds of a suite: what the command line says, else 2 when quick, else `rounds`. */
export function measureOptions({ quick, rounds: asked }: BenchOptions, rounds: number): MeasureOptions {
  return { warmups: quick ? 1 : 2, rounds: asked ?? (quick ? 2 : rounds) };
}

export function threadsText(threads: number): string {
  return threads === 1 ? '1 thread' : `${threads} threads`;
}
