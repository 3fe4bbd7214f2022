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

interface DeltaShape {
  readonly numHeads: number;
  readonly numKeyHeads: number;
  readonly keyDim: number;
  readonly valueDim: number;
}

/** A number with a bound on the error of float32. */
interface Bounded {
  readonly value: number;
  readonly error: number;
}

const eps = 1e-6;

function deltaCase(setup: StateSetup, shape: DeltaShape, heads: 'tiled' | 'grouped'): KernelCase {
  const { numHeads, numKeyHeads, keyDim, valueDim } = shape;
  return {
    op: 'gated-delta',
    name: `${setup.name}, ${numHeads} heads of ${valueDim} over ${numKeyHeads} of ${keyDim}, ${heads}`,
    dtypes: {},
    attributes: { numKeyHeads, eps, heads },
    create: (rng, arithmetic) => createDelta(rng, arithmetic, setup, shape, heads === 'tiled'),
  };
}

function createDelta(
  rng: Rng,
  arithmetic: Arithmetic,
  setup: StateSetup,
  shape: DeltaShape,
  isTiled: boolean,
): KernelData {
  const { numHeads, numKeyHeads, keyDim, valueDim } = shape;
  const inputs = createInputs(rng, numTokensOf(setup), shape);
  const state = gaussian(rng, [numStateRows, numHeads, valueDim, keyDim], 0.5);
  const after = numbersOf(state);
  const before = after.slice();
  const afterBounds = new Float64Array(after.length);
  const values = new Float64Array(numTokensOf(setup) * numHeads * valueDim);
  const bounds = new Float64Array(values.length);
  const steps = new Steps(inputs, shape, arithmetic);
  for (const { begin, end, from, to } of tokenRanges(setup)) {
    for (let head = 0; head < numHeads; head++) {
      const keyHead = isTiled ? head % numKeyHeads : Math.floor(head / (numHeads / numKeyHeads));
      const row = numHeads * valueDim * keyDim;
      const offset = head * valueDim * keyDim;
      const memory = new Memory(valueDim, keyDim, arithmetic);
      if (from >= 0) memory.values.set(before.subarray(from * row + offset, from * row + offset + valueDim * keyDim));
      for (let t = begin; t < end; t++) {
        for (const [i, { value, error }] of steps.take(memory, t, head, keyHead).entries()) {
          values[(t * numHeads + head) * valueDim + i] = value;
          bounds[(t * numHeads + head) * valueDim + i] = error;
        }
      }
      after.set(memory.values, to * row + offset);
      afterBounds.set(memory.errors, to * row + offset);
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

type DeltaInputs = Readonly<Record<'qkv' | 'alpha' | 'beta' | 'alphaBias' | 'decay', CaseTensor>>;

function createInputs(rng: Rng, numTokens: number, shape: DeltaShape): DeltaInputs {
  const { numHeads, numKeyHeads, keyDim, valueDim } = shape;
  const qkv = gaussian(rng, [numTokens, 2 * numKeyHeads * keyDim + numHeads * valueDim], 1, 0);
  const alpha = gaussian(rng, [numTokens, numHeads], 1, 0);
  const beta = gaussian(rng, [numTokens, numHeads], 1, 0);
  const alphaBias = gaussian(rng, [numHeads]);
  const decays = Float32Array.from({ length: numHeads }, () => -0.2 - rng.nextFloat());
  return { qkv, alpha, beta, alphaBias, decay: floats([numHeads], decays) };
}

/** The inputs of every token for the memory of a head. */
class Steps {
  readonly #numbers: Readonly<Record<keyof DeltaInputs, Float64Array>>;
  readonly #shape: DeltaShape;
  readonly #arithmetic: Arithmetic;

  constructor({ qkv, alpha, beta, alphaBias, decay }: DeltaInputs, shape: DeltaShape, arithmetic: Arithmetic) {
    this.#numbers = {
      ...{ qkv: numbersOf(qkv), alpha: numbersOf(alpha), beta: numbersOf(beta) },
      ...{ alphaBias: numbersOf(alphaBias), decay: numbersOf(decay) },
    };
    this.#shape = shape;
    this.#arithmetic = arithmetic;
  }

  /** Applies token `t` to the memory of a head; returns its output. */
  take(memory: Memory, t: number, head: number, keyHead: number): Bounded[] {
    const { numHeads, numKeyHeads, keyDim, valueDim } = this.#shape;
    const { qkv, alpha, beta, alphaBias, decay } = this.#numbers;
    const gate = t * numHeads + head;
    const channels = qkv.subarray(t * (2 * numKeyHeads * keyDim + numHeads * valueDim));
    const unitOf = (index: number, factor: number): Bounded[] =>
      unitVector(channels.subarray(index * keyDim, (index + 1) * keyDim), factor, this.#arithmetic);
    return memory.step(
      unitOf(keyHead, keyDim ** -0.5),
      unitOf(numKeyHeads + keyHead, 1),
      channels.subarray(2 * numKeyHeads * keyDim + head * valueDim),
      keptShare(alpha[gate], alphaBias[head], decay[head], this.#arithmetic),
      logistic(beta[gate], this.#arithmetic),
    );
  }
}

/** n squares and their sum, of which the root takes half; then three more operations. */
function unitVector(x: Float64Array, factor: number, { unit, elementary }: Arithmetic): Bounded[] {
  const norm = Math.hypot(...x, Math.sqrt(Math.fround(eps)));
  const relative = ((x.length + 1) / 2 + 4) * unit + 2 * elementary;
  return [...x].map((value) => {
    const scaled = (value / norm) * factor;
    return { value: scaled, error: Math.abs(scaled) * relative };
  });
}

/** `exp(softplus(alpha + bias) * decay)`: an error of the exponent is a relative error of the result. */
function keptShare(alpha: number, bias: number, decay: number, { unit, elementary }: Arithmetic): Bounded {
  const x = alpha + bias;
  const softplus = x > 30 ? x : Math.log(1 + Math.exp(x));
  const softplusError = unit * Math.abs(x) + softplus * (3 * elementary + 2 * unit) + unit;
  const value = Math.exp(softplus * decay);
  return { value, error: value * (Math.abs(decay) * (softplusError + unit * softplus) + elementary) };
}

function logistic(x: number, { unit, elementary }: Arithmetic): Bounded {
  const value = 1 / (1 + Math.exp(-x));
  return { value, error: value * (elementary + 3 * unit) };
}

/**
 * The memory with a running bound of every entry: the error of the inputs, as the operation propagates it, and the
 * roundings of the operation itself, n + 3 for sums of n products in any order.
 */
class Memory {
  readonly values: Float64Array;
  readonly errors: Float64Array;
  readonly #valueDim: number;
  readonly #keyDim: number;
  readonly #unit: number;

  constructor(valueDim: number, keyDim: number, { unit }: Arithmetic) {
    this.values = new Float64Array(valueDim * keyDim);
    this.errors = new Float64Array(valueDim * keyDim);
    this.#valueDim = valueDim;
    this.#keyDim = keyDim;
    this.#unit = unit;
  }

  step(q: readonly Bounded[], k: readonly Bounded[], v: Float64Array, kept: Bounded, rate: Bounded): Bounded[] {
    const [valueDim, keyDim, unit] = [this.#valueDim, this.#keyDim, this.#unit];
    const { values, errors } = this;
    return Array.from({ length: valueDim }, (_, i) => {
      const row = i * keyDim;
      for (let j = 0; j < keyDim; j++) {
        const [value, error] = [values[row + j], errors[row + j]];
        values[row + j] = value * kept.value;
        errors[row + j] =
          (kept.value + kept.error) * error + Math.abs(value) * (kept.error + unit * kept.value) * (1 + unit);
      }
      const recalled = this.#product(row, k);
      const difference = v[i] - recalled.value;
      const differenceError = recalled.error + unit * Math.abs(difference);
      const delta = rate.value * difference;
      const deltaError =
        (rate.value + rate.error) * differenceError + Math.abs(difference) * rate.error + unit * Math.abs(delta);
      for (let j = 0; j < keyDim; j++) {
        const change = delta * k[j].value;
        const changeError = deltaError * (Math.abs(k[j].value) + k[j].error) + Math.abs(delta) * k[j].error;
        values[row + j] += change;
        errors[row + j] += changeError + 2 * unit * (Math.abs(change) + Math.abs(values[row + j]));
      }
      return this.#product(row, q);
    });
  }

  #product(row: number, x: readonly Bounded[]): Bounded {
    let value = 0;
    let error = 0;
    for (const [j, factor] of x.entries()) {
      const [own, ownError] = [this.values[row + j], this.errors[row + j]];
      const magnitude = (Math.abs(own) + ownError) * (Math.abs(factor.value) + factor.error);
      value += own * factor.value;
      error += magnitude - Math.abs(own * factor.value) + (x.length + 3) * this.#unit * magnitude;
    }
    return { value, error };
  }
}

const shapes: readonly DeltaShape[] = [
  { numHeads: 2, numKeyHeads: 2, keyDim: 8, valueDim: 8 },
  { numHeads: 4, numKeyHeads: 2, keyDim: 16, valueDim: 16 },
  { numHeads: 6, numKeyHeads: 2, keyDim: 12, valueDim: 20 },
  { numHeads: 3, numKeyHeads: 1, keyDim: 7, valueDim: 5 },
  { numHeads: 2, numKeyHeads: 1, keyDim: 128, valueDim: 34 },
  { numHeads: 1, numKeyHeads: 1, keyDim: 33, valueDim: 3 },
];

export const gatedDeltaCases: readonly KernelCase[] = stateSetups.flatMap((setup) =>
  shapes.flatMap((shape) => [
    deltaCase(setup, shape, 'tiled'),
    ...(shape.numKeyHeads > 1 ? [deltaCase(setup, shape, 'grouped')] : []),
  ]),
);
