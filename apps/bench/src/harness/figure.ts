/** One line of a benchmark's result. */
import type { Timing } from './measure.js';

/** A measured value and its comparison, both from the same run. */
export interface Figure {
  readonly suite: string;
  readonly case: string;
  /** At the median time. */
  readonly value: number;
  readonly unit: string;
  /** The value at the shortest time. */
  readonly best: number;
  /** `value` divided by the same figure of `ratioOf`. */
  readonly ratio: number;
  readonly ratioOf: string;
}

/** A value at the median and at the best time. */
export interface Rate {
  readonly value: number;
  readonly best: number;
}

/** Billions of `amount` per second: GB/s for bytes, GOP/s for operations. */
export function gigaPerSecond(amount: number, { medianMs, minMs }: Timing): Rate {
  return { value: amount / medianMs / 1e6, best: amount / minMs / 1e6 };
}

export function perSecond(count: number, { medianMs, minMs }: Timing): Rate {
  return { value: (count * 1000) / medianMs, best: (count * 1000) / minMs };
}

export function milliseconds({ medianMs, minMs }: Timing, divisor = 1): Rate {
  return { value: medianMs / divisor, best: minMs / divisor };
}
