/**
 * A histogram of 32-bit floats whose bins are floats with a few bits of mantissa: one shift finds the bin of a value.
 */

const droppedBits = 17; // of 23: bins are 1/64 of an octave wide
const binsPerSign = 1 << (31 - droppedBits);

/**
 * Streams values and finds the bin edge above which a share of them lies. Edges are floats, so counts above them are
 * exact.
 */
export class FloatHistogram {
  /** Number of values in each bin, from the most negative to the largest. */
  readonly counts: Float64Array;
  /** The sum of the weights of the same values. */
  readonly weights: Float64Array;

  constructor(
    counts: Float64Array = new Float64Array(2 * binsPerSign),
    weights: Float64Array = new Float64Array(2 * binsPerSign),
  ) {
    this.counts = counts;
    this.weights = weights;
  }

  /** @param weights of the values; default: all 0 */
  add(values: Float32Array, weights?: ArrayLike<number>): void {
    const bits = new Int32Array(values.buffer, values.byteOffset, values.length);
    const { counts, weights: sums } = this;
    for (let i = 0; i < bits.length; i++) {
      const bin = binOfBits(bits[i]);
      counts[bin] += 1;
      if (weights !== undefined) sums[bin] += weights[i];
    }
  }

  get totalCount(): number {
    return this.counts.reduce((sum, x) => sum + x, 0);
  }

  get totalWeight(): number {
    return this.weights.reduce((sum, x) => sum + x, 0);
  }

  /** The largest edge at or above which at least this much weight lies; -Infinity if it exceeds the total. */
  edgeOfWeight(weight: number): number {
    return edgeOf(this.weights, weight);
  }

  /** Values at or above an edge, and their weight. */
  above(edge: number): { readonly count: number; readonly weight: number } {
    let count = 0;
    let weight = 0;
    for (let bin = binOf(edge); bin < this.counts.length; bin++) {
      count += this.counts[bin];
      weight += this.weights[bin];
    }
    return { count, weight };
  }
}

const scratch = new Float32Array(1);
const scratchBits = new Int32Array(scratch.buffer);

const minusZero = 1 << 31;

/** The bits of negative floats are in descending order; -0 equals 0 and shares its bin. */
function binOfBits(bits: number): number {
  if (bits === minusZero) return binsPerSign;
  return bits >= 0 ? binsPerSign + (bits >> droppedBits) : binsPerSign - 1 - ((bits & 0x7fffffff) >> droppedBits);
}

function binOf(value: number): number {
  scratch[0] = value;
  return binOfBits(scratchBits[0]);
}

/** The smallest value of a bin. */
function edgeOfBin(bin: number): number {
  if (bin >= binsPerSign) scratchBits[0] = (bin - binsPerSign) << droppedBits;
  else scratchBits[0] = ((binsPerSign - 1 - bin) << droppedBits) | ((1 << droppedBits) - 1) | (1 << 31);
  return scratch[0];
}

function edgeOf(sums: Float64Array, wanted: number): number {
  let sum = 0;
  let bin = sums.length - 1;
  for (; bin > 0; bin--) {
    sum += sums[bin];
    if (sum >= wanted) break;
  }
  return realEdge(bin);
}

/** Bins of NaN are beyond the infinities. */
function realEdge(bin: number): number {
  const edge = edgeOfBin(bin);
  if (!Number.isNaN(edge)) return edge;
  return bin >= binsPerSign ? Infinity : -Infinity;
}
