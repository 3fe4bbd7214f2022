/** Lowers one FFN to ops that compute its active neurons. */
import type { LayerFeedForward, NeuronPass, ProgramBuilder, ProgramTensor } from '@winnow/ops';
import { lowerValues } from './block-request.js';

/** The active neurons of a step: `ids` `[F]` and `count` `[1]`, both i32. */
export interface ActiveTensors {
  readonly ids: ProgramTensor;
  readonly count: ProgramTensor;
}

/** The prediction for the neurons of a step. */
export interface PredictedTensors extends ActiveTensors {
  /** `[T, F]`, compared with the thresholds. */
  readonly scores: ProgramTensor;
  /** The active inputs of gate and up, if inputs are skipped. */
  readonly inputs?: ActiveTensors;
  /** The gate projection, if it was fully computed for the scores. */
  readonly gate?: ProgramTensor | undefined;
}

/** Declares the thresholds of a program when they are needed. */
type Thresholds = () => ProgramTensor;

/** Appends the selection of neurons whose scores reach their thresholds. */
export function appendActive(
  b: ProgramBuilder,
  scores: ProgramTensor,
  thresholds: ProgramTensor,
  attributes: { readonly maxRatio: number; readonly absolute: boolean },
): ActiveTensors {
  const { ids, count } = b.append('active-neurons', { scores, thresholds }, attributes);
  return { ids: ids as ProgramTensor, count: count as ProgramTensor };
}

export class BlockLowering {
  readonly #b: ProgramBuilder;
  readonly #request: LayerFeedForward;

  constructor(b: ProgramBuilder, request: LayerFeedForward) {
    this.#b = b;
    this.#request = request;
  }

  /** Scores by the dense gate, or by up if there is no gate. @param thresholds `[F]` */
  predictByGate(thresholds: Thresholds, maxRatio: number): PredictedTensors {
    const { x, gate, gateBias, up, upBias, activation } = this.#request;
    const b = this.#b;
    const first = gate === undefined ? { weight: up(), bias: upBias?.() } : { weight: gate(), bias: gateBias?.() };
    const whole = b.activation('matmul', { x, ...first });
    const scores = b.activation('activation', { x: whole }, { kind: activation });
    const active = appendActive(b, scores, thresholds(), { maxRatio, absolute: true });
    return { ...active, scores, gate: gate === undefined ? undefined : whole };
  }

  /** Scores by the values from the inputs above their thresholds `[E]`. */
  predictByInputs(inputThresholds: Thresholds, thresholds: Thresholds, maxRatio: number): PredictedTensors {
    const { x, gate, gateBias, gateColumns, upBias, upColumns } = this.#request;
    const b = this.#b;
    if (upColumns === undefined || (gate !== undefined && gateColumns === undefined)) {
      return this.predictByValues(thresholds, maxRatio);
    }
    const inputs = appendActive(b, x, inputThresholds(), { maxRatio: 1, absolute: true });
    const { ids, count } = inputs;
    const h = b.activation('gather-columns', { x, ids, count });
    const product = (weight: ProgramTensor, bias: ProgramTensor | undefined): ProgramTensor =>
      this.#addBias(b.activation('sparse-combine', { h, weight, rows: ids, count }), bias);
    const up = product(upColumns(), upBias?.());
    const scores = this.#activate(up, gateColumns === undefined ? undefined : product(gateColumns(), gateBias?.()));
    return { ...appendActive(b, scores, thresholds(), { maxRatio, absolute: true }), scores, inputs };
  }

  /** Scores by the exact values `act(gate x) * up x`. */
  predictByValues(thresholds: Thresholds, maxRatio: number): PredictedTensors {
    const scores = lowerValues(this.#b, this.#request).values;
    return { ...appendActive(this.#b, scores, thresholds(), { maxRatio, absolute: true }), scores };
  }

  /** Computes the block from the rows of active neurons of every matrix. */
  fromActive(active: ActiveTensors): ProgramTensor {
    const { gate, gateBias, neurons } = this.#request;
    if (neurons !== undefined) return this.#addDownBias(this.#fused(active, neurons));
    return this.#passes(active, (pass) => {
      const up = this.#chosenUp(pass);
      const gated = gate && this.#chosen(gate(), pass, gateBias?.());
      return this.#activate(up, gated, pass.count);
    });
  }

  /** Computes the block from scores that are neuron values, or their gates. */
  fromScores({ ids, count, scores, gate }: PredictedTensors): ProgramTensor {
    const b = this.#b;
    return this.#passes({ ids, count }, (pass) => {
      const columns = { ids: pass.ids, count: pass.count };
      if (gate === undefined) return b.activation('gather-columns', { x: scores, ...columns });
      const gated = b.activation('gather-columns', { x: gate, ...columns });
      return this.#activate(this.#chosenUp(pass), gated, pass.count);
    });
  }

  /** The same as `fromActive` with one fused op per pass. */
  #fused({ ids, count }: ActiveTensors, neurons: () => ProgramTensor): ProgramTensor {
    const { x, activation: kind } = this.#request;
    let sum: ProgramTensor | undefined;
    for (const { rows, count: ofPass } of this.#request.passes?.(ids, count) ?? [{ rows: ids, count }]) {
      const inputs = { x, weight: neurons(), rows, count: ofPass, previous: sum };
      sum = this.#b.activation('sparse-feed-forward', inputs, { kind });
    }
    return sum as ProgramTensor;
  }

  /**
   * The sum over all passes of `down` applied to `values` (`[T, F]`, neuron j of the pass in column j), plus the bias.
   */
  #passes({ ids, count }: ActiveTensors, values: (pass: NeuronPass) => ProgramTensor): ProgramTensor {
    const b = this.#b;
    let sum: ProgramTensor | undefined;
    for (const pass of this.#request.passes?.(ids, count) ?? [{ ids, rows: ids, count }]) {
      const h = values(pass);
      const { rows, count: ofPass } = pass;
      const weight = this.#request.downRows();
      sum = b.activation('sparse-combine', { h, weight, rows, count: ofPass, previous: sum });
    }
    return this.#addDownBias(sum as ProgramTensor);
  }

  #chosen(weight: ProgramTensor, { ids, rows, count }: NeuronPass, bias: ProgramTensor | undefined): ProgramTensor {
    const biased = bias === undefined ? {} : { bias, ids };
    return this.#b.activation('sparse-matmul', { x: this.#request.x, weight, rows, count, ...biased });
  }

  #chosenUp(pass: NeuronPass): ProgramTensor {
    return this.#chosen(this.#request.up(), pass, this.#request.upBias?.());
  }

  /** With a count, computes only the columns below it. */
  #activate(up: ProgramTensor, gate?: ProgramTensor, count?: ProgramTensor): ProgramTensor {
    const kind = this.#request.activation;
    if (gate === undefined) return this.#b.activation('activation', { x: up, count }, { kind });
    return this.#b.activation('glu', { gate, up, count }, { kind });
  }

  #addDownBias(y: ProgramTensor): ProgramTensor {
    return this.#addBias(y, this.#request.downBias?.());
  }

  /** Broadcasts the bias to a row per token; the host leaves the indices at 0. */
  #addBias(y: ProgramTensor, bias: ProgramTensor | undefined): ProgramTensor {
    if (bias === undefined) return y;
    const b = this.#b;
    const [width] = bias.shape;
    const table = b.reshape(bias, [1, width as number]);
    const tokens = zeroRows(b);
    return b.activation('add', { a: y, b: b.activation('embedding-lookup', { table, tokens }) });
  }
}

const zeros = new WeakMap<ProgramBuilder, ProgramTensor>();

/** Indices `[T]` that are all 0, one scalar slot for all blocks of a program. */
function zeroRows(b: ProgramBuilder): ProgramTensor {
  let tensor = zeros.get(b);
  if (tensor === undefined) zeros.set(b, (tensor = b.scalar('sparseZeros', ['T'])));
  return tensor;
}
