/** One FFN on a backend, dense or with chosen neurons. */
import { BoundProgram, type Backend, type ProgramBuilder } from '@winnow/ops';
import { ArgumentError } from '@winnow/tensor';
import { BlockLowering } from './block-lowering.js';
import { blockRequest, lowerDown, lowerValues } from './block-request.js';
import { checkFeedForward, columnNorms, weightedMagnitudes, type FeedForwardWeights } from './feed-forward-weights.js';
import { inputRows, runRows } from './input-rows.js';

/** Options of `FeedForwardBlock`. */
export interface FeedForwardBlockOptions {
  readonly backend: Backend;
  readonly weights: FeedForwardWeights;
  /** Maximum number of tokens per run; longer inputs take several runs. Default 32. */
  readonly maxTokens?: number;
}

/** The intermediate values of a block for n hidden states. */
export interface BlockValues {
  /** Before the activation, with bias; only of gated blocks. */
  readonly gate?: Float32Array; // [n, F]
  /** With bias; before the activation in blocks without a gate. */
  readonly up: Float32Array; // [n, F]
  /** The activation of each neuron, the coefficient of its column of `down`. */
  readonly values: Float32Array; // [n, F]
}

/**
 * A block whose weights are arrays, for experiments and measurements. Programs are prepared on first use; `close` frees
 * their memory. One call at a time.
 */
export class FeedForwardBlock {
  readonly #backend: Backend;
  readonly #weights: FeedForwardWeights;
  readonly #maxTokens: number;
  #dense: Promise<BoundProgram> | undefined;
  #sparse: Promise<BoundProgram> | undefined;

  /** @throws {ShapeError} when the size of an array does not match the dims */
  constructor({ backend, weights, maxTokens = 32 }: FeedForwardBlockOptions) {
    checkFeedForward(weights);
    this.#backend = backend;
    this.#weights = weights;
    this.#maxTokens = maxTokens;
  }

  /**
   * The output `[n, E]` of all neurons, or only of `ids`.
   * @param x normalized hidden states `[n, E]`
   * @throws {ShapeError | ArgumentError} for hidden states of another size and for invalid neurons
   */
  async forward(x: Float32Array, ids?: ArrayLike<number>): Promise<Float32Array> {
    const y = new Float32Array(x.length);
    const { hiddenDim, ffnDim } = this.#weights;
    if (ids !== undefined) checkIds(ids, ffnDim);
    const program = await (ids === undefined ? this.#denseProgram() : this.#sparseProgram());
    if (ids !== undefined) {
      program.scalars.slot('ids').fill(0).set(ids);
      program.scalars.slot('count')[0] = ids.length;
    }
    await runRows(program, x, hiddenDim, (begin, end) =>
      program.read('y', y.subarray(begin * hiddenDim, end * hiddenDim)),
    );
    return y;
  }

  /** The values of all neurons. @param x `[n, E]` */
  async values(x: Float32Array): Promise<BlockValues> {
    const { hiddenDim, ffnDim, gate } = this.#weights;
    const length = Math.floor(x.length / hiddenDim) * ffnDim;
    const outputs = {
      ...(gate === undefined ? {} : { gate: new Float32Array(length) }),
      ...{ up: new Float32Array(length), values: new Float32Array(length) },
    };
    const program = await this.#denseProgram();
    await runRows(program, x, hiddenDim, async (begin, end) => {
      for (const [name, array] of Object.entries(outputs)) {
        await program.read(name, array.subarray(begin * ffnDim, end * ffnDim));
      }
    });
    return outputs;
  }

  /**
   * The norm of what each neuron adds to the output: `|act(gate x) * up x| * ||column of down||`, `[n, F]`. SiLU is
   * never exactly 0, so this norm, not the activation, shows whether a neuron matters.
   */
  async contributions(x: Float32Array): Promise<Float32Array> {
    const { down, hiddenDim, ffnDim } = this.#weights;
    const { values } = await this.values(x);
    return weightedMagnitudes(values, columnNorms(down, hiddenDim, ffnDim));
  }

  /** Frees the memory on the backend. */
  async close(): Promise<void> {
    for (const program of [this.#dense, this.#sparse]) await (await program)?.close();
    this.#dense = this.#sparse = undefined;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #denseProgram(): Promise<BoundProgram> {
    this.#dense ??= this.#prepare((b, weights) => {
      const request = blockRequest(b, this.#weights, inputRows(b, this.#weights.hiddenDim), weights);
      const { gate, up, values } = lowerValues(b, request);
      if (gate !== undefined) b.output('gate', gate);
      b.output('up', up);
      b.output('values', values);
      b.output('y', lowerDown(b, request, values));
    });
    return this.#dense;
  }

  #sparseProgram(): Promise<BoundProgram> {
    this.#sparse ??= this.#prepare((b, weights) => {
      const { hiddenDim, ffnDim } = this.#weights;
      const request = blockRequest(b, this.#weights, inputRows(b, hiddenDim), weights);
      const active = { ids: b.scalar('ids', [ffnDim]), count: b.scalar('count', [1]) };
      b.output('y', new BlockLowering(b, request).fromActive(active));
    });
    return this.#sparse;
  }

  #prepare(build: (b: ProgramBuilder, weights: Map<string, Uint8Array>) => void): Promise<BoundProgram> {
    const weights = new Map<string, Uint8Array>();
    const options = { backend: this.#backend, symbols: { T: this.#maxTokens }, weights };
    return BoundProgram.prepare(options, (b) => build(b, weights));
  }
}

/** @throws {ArgumentError} */
function checkIds(ids: ArrayLike<number>, ffnDim: number): void {
  for (let i = 0; i < ids.length; i++) {
    if (i < ffnDim && Number.isInteger(ids[i]) && ids[i] >= 0 && ids[i] < ffnDim) continue;
    const expected = `at most ${ffnDim} neurons from 0 to ${ffnDim - 1}`;
    throw new ArgumentError({ argument: 'ids', expected, actual: `${ids[i]} at index ${i}` });
  }
}
