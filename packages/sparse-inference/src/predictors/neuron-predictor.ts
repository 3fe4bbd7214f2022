/**
 * The predictor of one calibrated layer as a standalone program, the same that `createFeedForwardLowering` puts before
 * a sparse block.
 */
import { BoundProgram, type Backend } from '@winnow/ops';
import { ArgumentError, checkOptions, type OptionNames, ShapeError } from '@winnow/tensor';
import { blockRequest } from '../blocks/block-request.js';
import { checkFeedForward, type FeedForwardWeights } from '../blocks/feed-forward-weights.js';
import { inputRows } from '../blocks/input-rows.js';
import { appendLowRank, appendPredictor, predictorWeights } from '../lowering/feed-forward-lowering.js';
import { isLowRank, type PredictedLayer, type PredictorKind } from '../sidecar/sidecar.js';

/** The prediction for one hidden state. */
export interface ActiveNeurons {
  /** In ascending order. */
  readonly ids: Int32Array;
  /** `[F]`; all kinds except `low-rank` compare magnitudes with the thresholds. */
  readonly scores: Float32Array;
  /** Active inputs in ascending order; only for `input-threshold`. */
  readonly inputs?: Int32Array;
}

/** Options of `NeuronPredictor.create`. */
export interface NeuronPredictorOptions {
  readonly backend: Backend;
  /** Weights of the block. Not needed for low-rank predictors. */
  readonly weights?: FeedForwardWeights;
  /** Select by exact contributions, which computes everything: an upper bound for predictors. Default false. */
  readonly oracle?: boolean;
}

const predictorNames: OptionNames<NeuronPredictorOptions> = { backend: true, weights: true, oracle: true };

/**
 * Predicts the active neurons from the normalized hidden state that enters the block. `close` frees its memory on the
 * backend. One call at a time. Sources: `gate-threshold` is CATS (arXiv:2404.08763 section 3) with a threshold per
 * neuron, `input-threshold` TEAL (arXiv:2408.14690).
 */
export class NeuronPredictor {
  readonly kind: PredictorKind | 'oracle';
  readonly hiddenDim: number;
  readonly ffnDim: number;
  readonly #program: BoundProgram;

  private constructor(layer: PredictedLayer, oracle: boolean, program: BoundProgram) {
    this.kind = oracle ? 'oracle' : layer.predictor.kind;
    this.hiddenDim = layer.hiddenDim;
    this.ffnDim = layer.ffnDim;
    this.#program = program;
  }

  /**
   * @throws {ArgumentError} without weights, if the predictor computes parts of the block
   * @throws {ShapeError} for weights of another block
   */
  static async create(layer: PredictedLayer, options: NeuronPredictorOptions): Promise<NeuronPredictor> {
    checkOptions(options, predictorNames);
    const { backend, weights, oracle = false } = options;
    if (weights !== undefined) checkFeedForward(weights);
    else if (oracle || !isLowRank(layer.predictor.kind)) {
      const expected = `weights of the block, for ${oracle ? 'an oracle' : layer.predictor.kind}`;
      throw new ArgumentError({ argument: 'weights', expected, actual: 'none' });
    }
    const contents = new Map<string, Uint8Array>();
    for (const [name, { bytes }] of predictorWeights({ layers: [layer] }, { oracle })) contents.set(name, bytes);
    const program = await BoundProgram.prepare({ backend, symbols: { T: 1 }, weights: contents }, (b) => {
      const x = inputRows(b, layer.hiddenDim);
      const { inputs, ids, count, scores } =
        weights === undefined
          ? appendLowRank(b, layer, x, 1)
          : appendPredictor(b, layer, blockRequest(b, weights, x, contents), { oracle, maxRatio: 1 });
      const lists = { ids, count, ...(inputs && { 'inputs.ids': inputs.ids, 'inputs.count': inputs.count }) };
      for (const [name, tensor] of Object.entries({ scores, ...lists })) b.output(name, tensor);
    });
    return new NeuronPredictor(layer, oracle, program);
  }

  /** @param x `[E]` */
  async predict(x: Float32Array): Promise<ActiveNeurons> {
    if (x.length !== this.hiddenDim) {
      const [expected, actual] = [`${this.hiddenDim} values`, String(x.length)];
      throw new ShapeError({ op: 'predictor', rule: 'x', expected, actual });
    }
    const program = this.#program;
    await program.write('x', x);
    program.scalars.bind('T', 1);
    await program.run();
    const scores = new Float32Array(this.ffnDim);
    await program.read('scores', scores);
    const ids = await this.#readList('', this.ffnDim);
    if (this.kind !== 'input-threshold') return { ids, scores };
    return { ids, scores, inputs: await this.#readList('inputs.', this.hiddenDim) };
  }

  /** Closing twice is harmless. */
  close(): Promise<void> {
    return this.#program.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #readList(prefix: string, capacity: number): Promise<Int32Array> {
    const [ids, count] = [new Int32Array(capacity), new Int32Array(1)];
    await this.#program.read(`${prefix}ids`, ids);
    await this.#program.read(`${prefix}count`, count);
    return ids.slice(0, count[0]);
  }
}
