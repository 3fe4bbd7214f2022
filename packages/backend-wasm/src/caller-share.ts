/**
 * Whether a program runs on the calling thread: the way to the workers and back costs more than a very small program. The
 * first guess is by its work, then its own times decide.
 */
import { opSpec, type OpRecord, type Program } from '@winnow/ops';
import { tensorBytes } from '@winnow/tensor';
import { capacityOf } from './record-shapes.js';

export interface CallerShare {
  /** Whether the next run belongs on the calling thread. */
  readonly isShort: boolean;
  /** Tells the time of a run, wherever it was. */
  observe(timeMs: number): void;
}

/** Of jobs that always belong to the workers. */
export const workersOnly: CallerShare = { isShort: false, observe: () => undefined };

/** Rough speed of one thread: bytes per millisecond. */
const workPerMs = 1e7;
/** Share of the newest run in the running mean. */
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

/** Bytes of weights or, where that is more, a quarter of the floating-point operations. */
function workOf(program: Program, { op, inputs, outputs, attributes }: OpRecord): number {
  const tensors = Object.entries({ ...outputs, ...inputs });
  const shapes = Object.fromEntries(tensors.map(([name, tensor]) => [name, capacityOf(program, tensor)]));
  const { weight } = inputs;
  const bytes = weight === undefined ? 0 : tensorBytes(weight.dtype, capacityOf(program, weight));
  return Math.max(bytes, opSpec(op).flops(shapes, attributes) / 4);
}
