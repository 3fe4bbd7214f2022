/** The interface of a suite: a name and a run that yields figures as they are measured. */
import type { NativeKernels } from '@winnow/native';
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
  /** Instruction set of the native kernels of `--native`. */
  readonly nativeLevel: NativeKernels['level'] | undefined;
  /** @param isNative default: the option `--native` */
  createBackend(threads: number, place: Place, isNative?: boolean): Promise<Backend>;
  /** Reports CPU time used by one of our processes. */
  addOwnMs(ms: number): void;
  /** Reports progress; not part of the result. */
  say(text: string): void;
  /** Adds points to the plots of `--plots`; otherwise a no-op. */
  readonly plot: AddPoint;
}

export interface Suite {
  readonly name: string;
  readonly summary: string;
  run(context: SuiteContext): AsyncIterable<Figure>;
}

/** Number of rounds of a suite: from the command line, else 2 with `--quick`, which has no warm-up, else `rounds`. */
export function measureOptions({ quick, rounds: asked }: BenchOptions, rounds: number): MeasureOptions {
  return { warmups: quick ? 0 : 2, rounds: asked ?? (quick ? 2 : rounds) };
}

export function threadsText(threads: number): string {
  return threads === 1 ? '1 thread' : `${threads} threads`;
}

/** Kernels that a suite measures side by side. */
export interface Side {
  /** Suffix of the names of cases and contenders; empty for WebAssembly. */
  readonly label: string;
  readonly isNative: boolean;
}

/** WebAssembly, and with `--native` the native kernels, too. */
export function sidesOf({ nativeLevel }: SuiteContext): readonly Side[] {
  const wasm = { label: '', isNative: false };
  return nativeLevel === undefined ? [wasm] : [wasm, { label: `, ${nativeLevel}`, isNative: true }];
}

/** The probe of memory bandwidth for a side. */
export function readOf({ isNative }: Side): 'memory read' | 'native memory read' {
  return isNative ? 'native memory read' : 'memory read';
}
