import type { Rng } from '@winnow/tensor';
import type { Arithmetic } from '../arithmetic.js';
import type { CaseTensor, KernelCase, KernelData } from '../kernel-case.js';
import {
  numStateRows,
  numTokensOf,
  stateSetups,
  stateTensors,
  tokenRanges,
  type StateSetup,
} from '../setups/state-setups.js';
import { close, floats, gaussian, numbersOf } from '../values.js';

interface ScanShape {
  readonly numHeads: number;
  readonly headDim: number;
  readonly numGroups: number;
  readonly stateDim: number;
  /** One decay per column of the state instead of one per head. */
  readonly hasColumnDecays?: boolean;
  readonly hasBias?: boolean;
}

function scanCase(setup: StateSetup, shape: ScanShape): KernelCase {
  const { numHeads, headDim, numGroups, stateDim, hasColumnDecays = false, hasBias = false } = shape;
  const sizes = `${numHeads} heads of ${headDim} x ${stateDim} in ${numGroups} groups`;
  return {
    op: 'selective-scan',
    name: `${setup.name}, ${sizes}${hasColumnDecays ? ', decays of columns' : ''}${hasBias ? ', bias' : ''}`,
    dtypes: {},
    attributes: {},
    create: (rng, arithmetic) => createScan(rng, arithmetic, setup, shape),
  };
}

type ScanInputs = Readonly<Record<'x' | 'b' | 'c' | 'dt' | 'decay' | 'skip', CaseTensor>> & {
  readonly dtBias?: CaseTensor;
};

function createInputs(rng: Rng, numTokens: number, shape: ScanShape): ScanInputs {
  const { numHeads, headDim, numGroups, stateDim, hasColumnDecays = false, hasBias = false } = shape;
  const numDecays = hasColumnDecays ? stateDim : 1;
  const decays = Float32Array.from({ length: numHeads * numDecays }, () => -0.2 - rng.nextFloat());
  return {
    x: gaussian(rng, [numTokens, numHeads, headDim], 1, 0),
    b: gaussian(rng, [numTokens, numGroups, stateDim], 1, 0),
    c: gaussian(rng, [numTokens, numGroups, stateDim], 1, 0),
    dt: gaussian(rng, [numTokens, numHeads], 1, 0),
    decay: floats([numHeads, numDecays], decays),
    skip: gaussian(rng, [numHeads]),
    ...(hasBias ? { dtBias: gaussian(rng, [numHeads]) } : {}),
  };
}

function createScan(rng: Rng, arithmetic: Arithmetic, setup: StateSetup, shape: ScanShape): KernelData {
  const { numHeads, headDim, stateDim } = shape;
  const inputs = createInputs(rng, numTokensOf(setup), shape);
  const state = gaussian(rng, [numStateRows, numHeads, headDim, stateDim], 0.5);
  const after = numbersOf(state);
  const before = after.slice();
  const afterBounds = new Float64Array(after.length);
  const values = new Float64Array(numTokensOf(setup) * numHeads * headDim);
  const bounds = new Float64Array(values.length);
  const scan = new Scan(inputs, shape, arithmetic);
  const length = headDim * stateDim;
  for (const { begin, end, from, to } of tokenRanges(setup)) {
    for (let head = 0; head < numHeads; head++) {
      const source = (from * numHeads + head) * length;
      const own = from < 0 ? new Float64Array(length) : before.slice(source, source + length);
      const errors = new Float64Array(length);
      for (let t = begin; t < end; t++) {
        for (let i = 0; i < headDim; i++) {
          const at = (t * numHeads + head) * headDim + i;
          [values[at], bounds[at]] = scan.row(own, errors, t, head, i);
        }
      }
      after.set(own, (to * numHeads + head) * length);
      afterBounds.set(errors, (to * numHeads + head) * length);
    }
  }
  return {
    inputs: { ...inputs, ...stateTensors(setup) },
    updated: { state },
    expected: {
      y: close(values.length, (i) => [values[i], bounds[i]]),
      state: close(after.length, (i) => [after[i], afterBounds[i]]),
    },
  };
}

/** The scan with a running bound of every entry of the state: the error of the inputs, as it propagates, and the roundings. */
class Scan {
  readonly #numbers: Readonly<Record<keyof Omit<ScanInputs, 'dtBias'>, Float64Array>>;
  readonly #biases: Float64Array | undefined;
  readonly #shape: ScanShape;
  readonly #arithmetic: Arithmetic;

  constructor({ x, b, c, dt, decay, skip, dtBias }: ScanInputs, shape: ScanShape, arithmetic: Arithmetic) {
    this.#numbers = {
      ...{ x: numbersOf(x), b: numbersOf(b), c: numbersOf(c) },
      ...{ dt: numbersOf(dt), decay: numbersOf(decay), skip: numbersOf(skip) },
    };
    this.#biases = dtBias && numbersOf(dtBias);
    this.#shape = shape;
    this.#arithmetic = arithmetic;
  }

  /** Updates row `i` of a head's state with token `t`; returns an output with its bound. */
  row(state: Float64Array, errors: Float64Array, t: number, head: number, i: number): [value: number, bound: number] {
    const { numHeads, headDim, numGroups, stateDim, hasColumnDecays = false } = this.#shape;
    const { unit, elementary } = this.#arithmetic;
    const { x, b, c, decay, skip } = this.#numbers;
    const group = (t * numGroups + Math.floor(head / (numHeads / numGroups))) * stateDim;
    const input = x[(t * numHeads + head) * headDim + i];
    const [step, stepError] = this.#step(t, head);
    const skipped = skip[head] * input;
    let value = skipped;
    let magnitude = Math.abs(skipped);
    let error = 0;
    for (let j = 0; j < stateDim; j++) {
      const at = i * stateDim + j;
      const rate = hasColumnDecays ? decay[head * stateDim + j] : decay[head];
      const kept = Math.exp(step * rate);
      // an error of the exponent is a relative error of the factor
      const keptError = kept * (Math.abs(rate) * (stepError + unit * step) + elementary + unit);
      const change = step * input * b[group + j];
      const changeError = Math.abs(input * b[group + j]) * stepError + 3 * unit * Math.abs(change);
      const old = state[at];
      state[at] = kept * old + change;
      errors[at] =
        (kept + keptError) * errors[at] +
        Math.abs(old) * (keptError + unit * kept) +
        changeError +
        unit * (Math.abs(change) + Math.abs(state[at]));
      value += state[at] * c[group + j];
      magnitude += (Math.abs(state[at]) + errors[at]) * Math.abs(c[group + j]);
      error += errors[at] * Math.abs(c[group + j]);
    }
    // S + 1 products and sums in any order
    return [value, error + (stateDim + 4) * unit * magnitude];
  }

  /** `softplus(dt + bias)` and a bound on its error. */
  #step(t: number, head: number): [value: number, bound: number] {
    const { unit, elementary } = this.#arithmetic;
    const x = this.#numbers.dt[t * this.#shape.numHeads + head] + (this.#biases?.[head] ?? 0);
    const value = Math.log(1 + Math.exp(x));
    return [value, unit * Math.abs(x) + value * (3 * elementary + 3 * unit) + unit];
  }
}

const shapes: readonly ScanShape[] = [
  { numHeads: 4, headDim: 8, numGroups: 2, stateDim: 16, hasBias: true },
  { numHeads: 3, headDim: 5, numGroups: 1, stateDim: 7 },
  { numHeads: 2, headDim: 34, numGroups: 1, stateDim: 128, hasBias: true },
  { numHeads: 6, headDim: 1, numGroups: 1, stateDim: 16, hasColumnDecays: true },
  { numHeads: 5, headDim: 3, numGroups: 5, stateDim: 9, hasColumnDecays: true, hasBias: true },
];

export const selectiveScanCases: readonly KernelCase[] = stateSetups.flatMap((setup) =>
  shapes.map((shape) => scanCase(setup, shape)),
);
