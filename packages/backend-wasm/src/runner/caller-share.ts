/**
 * Decides whether a program runs on the calling thread: waking the workers costs more than a very small program. The
 * first estimate is from its work, later ones from measured times.
 */
import { opSpec, type OpRecord, type Program } from '@winnow/ops';
import { tensorBytes } from '@winnow/tensor';
import { capacityOf } from '../kernels/record-shapes.js';

export interface CallerShare {
  /** Whether the next run should be on the calling thread. */
  readonly isShort: boolean;
  /** Records the time of a run on either. */
  observe(timeMs: number): void;
}

/** For jobs that always run on workers. */
export const workersOnly: CallerShare = { isShort: false, observe: () => undefined };

/** Rough speed of one thread: bytes per millisecond. */
const workPerMs = 1e7;
/** Weight of the newest run in the running mean. */
const newest = 1 / 8;
/** Runs on workers until the calling thread is tried again: other programs may have kept it busy. */
const numRunsAway = 256;

/** Steps of up to this many tokens are measured separately by their number of tokens. */
const maxSized = 16;
/** Tolerance of estimates, which assume full contexts and slow kernels. */
const estimateExcess = 3;
/** Tolerance of times where workers are slower: a worker that is woken for a run seems slower than it is. */
const excess = 2;
/** Number of runs on workers before they can count as slower. */
const minRunsAway = 8;

/** @param scalars the words of the program's scalars, which hold the sizes of the next run */
export function createCallerShare(program: Program, maxMs: number, scalars: Int32Array): CallerShare {
  if (maxMs === 0) return workersOnly;
  if (estimateMs(program) <= maxMs) return new MeasuredShare(maxMs);
  const tokens = program.scalars.slots.get('T');
  return tokens === undefined ? workersOnly : new SizedShare(program, maxMs, () => scalars[tokens.wordOffset]);
}

/** Decides for each small number of tokens separately: a large program may be short for few tokens. */
class SizedShare implements CallerShare {
  readonly #program: Program;
  readonly #maxMs: number;
  readonly #numTokens: () => number;
  readonly #shares: CallerShare[] = [];

  constructor(program: Program, maxMs: number, numTokens: () => number) {
    this.#program = program;
    this.#maxMs = maxMs;
    this.#numTokens = numTokens;
  }

  get isShort(): boolean {
    return this.#share.isShort;
  }

  observe(timeMs: number): void {
    this.#share.observe(timeMs);
  }

  get #share(): CallerShare {
    const numTokens = this.#numTokens();
    if (numTokens > maxSized) return workersOnly;
    return (this.#shares[numTokens] ??= this.#shareOf(numTokens));
  }

  #shareOf(numTokens: number): CallerShare {
    const isShort = estimateMs(this.#program, numTokens) <= estimateExcess * this.#maxMs;
    return isShort ? new MeasuredShare(this.#maxMs) : workersOnly;
  }
}

/**
 * Starts on the calling thread, then decides by running means of the measured times: a program above the limit runs on workers
 * while they are faster, or if it exceeds the limit by far.
 */
export class MeasuredShare implements CallerShare {
  readonly #maxMs: number;
  #isShort = true;
  #hereMs = 0;
  /** Mean time on workers without the first run, which wakes them; 0 when it has to be measured again. */
  #awayMs = 0;
  /** Runs on workers since the last one on the calling thread. */
  #numRuns = 0;
  /** Consecutive runs above the limit that stayed on the calling thread because workers were slower. */
  #numRunsKept = 0;

  constructor(maxMs: number) {
    this.#maxMs = maxMs;
  }

  get isShort(): boolean {
    return this.#isShort;
  }

  observe(timeMs: number): void {
    if (this.#isShort) this.#observeHere(timeMs);
    else this.#observeAway(timeMs);
  }

  #observeHere(timeMs: number): void {
    this.#hereMs += (timeMs - this.#hereMs) * newest;
    const fits = this.#hereMs <= this.#maxMs;
    this.#numRunsKept = fits ? 0 : this.#numRunsKept + 1;
    if (this.#numRunsKept === numRunsAway) {
      this.#numRunsKept = 0;
      this.#awayMs = 0; // they may have been slower only for a while
    }
    this.#isShort = fits || this.#areWorkersSlower();
    this.#numRuns = 0;
  }

  #observeAway(timeMs: number): void {
    this.#awayMs = this.#numRuns < 2 ? timeMs : this.#awayMs + (timeMs - this.#awayMs) * newest;
    this.#numRuns++;
    if (this.#numRuns >= minRunsAway && this.#areWorkersSlower()) {
      this.#isShort = true;
    } else if (this.#awayMs < this.#maxMs / 4 || this.#numRuns === numRunsAway) {
      this.#isShort = true;
      this.#hereMs = 0;
      this.#awayMs = 0;
    }
  }

  #areWorkersSlower(): boolean {
    return this.#hereMs < this.#awayMs && this.#hereMs <= excess * this.#maxMs;
  }
}

/** Estimated time of a run with this many tokens and output rows (default: the maximum), with all other symbols at capacity. */
function estimateMs(program: Program, numTokens?: number): number {
  const symbols = new Map(program.symbols);
  for (const symbol of ['T', 'R']) {
    if (numTokens !== undefined && symbols.has(symbol)) symbols.set(symbol, numTokens);
  }
  let work = 0;
  for (const record of program.records) work += workOf({ ...program, symbols }, record);
  return work / workPerMs;
}

/** The maximum of the bytes of weights and a quarter of the floating-point operations. */
function workOf(program: Program, { op, inputs, outputs, attributes }: OpRecord): number {
  const shapes: Record<string, readonly number[]> = {};
  for (const name in outputs) shapes[name] = capacityOf(program, outputs[name]);
  for (const name in inputs) shapes[name] = capacityOf(program, inputs[name]);
  const { weight } = inputs;
  const bytes = weight === undefined ? 0 : tensorBytes(weight.dtype, shapes['weight']);
  return Math.max(bytes, opSpec(op).flops(shapes, attributes) / 4);
}
