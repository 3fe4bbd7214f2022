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

export function createCallerShare(program: Program, maxMs: number): CallerShare {
  return maxMs > 0 && estimateMs(program) <= maxMs ? new MeasuredShare(maxMs) : workersOnly;
}

/** Short at first, then by the running mean of its times. */
class MeasuredShare implements CallerShare {
  readonly #maxMs: number;
  #isShort = true;
  #meanMs = 0;

  constructor(maxMs: number) {
    this.#maxMs = maxMs;
  }

  get isShort(): boolean {
    return this.#isShort;
  }

  observe(timeMs: number): void {
    this.#meanMs += (timeMs - this.#meanMs) * newest;
    this.#isShort = this.#isShort ? this.#meanMs <= this.#maxMs : this.#meanMs < this.#maxMs / 4;
  }
}

/** Time of a run with all symbols at their capacity. */
function estimateMs(program: Program): number {
  let work = 0;
  for (const record of program.records) work += workOf(program, record);
  return work / workPerMs;
}

/** The maximum of the bytes of weights and a quarter of the floating-point operations. */
function workOf(program: Program, { op, inputs, outputs, attributes }: OpRecord): number {
  const tensors = Object.entries({ ...outputs, ...inputs });
  const shapes = Object.fromEntries(tensors.map(([name, tensor]) => [name, capacityOf(program, tensor)]));
  const { weight } = inputs;
  const bytes = weight === undefined ? 0 : tensorBytes(weight.dtype, capacityOf(program, weight));
  return Math.max(bytes, opSpec(op).flops(shapes, attributes) / 4);
}
