/** One feed-forward block on a backend, with all neurons or with those of your choice. */
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
  /** Tokens of one run; longer inputs take several runs. Default 32. */
  readonly maxTokens?: number;
}

/** What a block computes on its way, of n hidden states. */
export interface BlockValues {
  /** Before the activation; of gated blocks. */
  readonly gate?: Float32Array; // [n, F]
  /** Bias included; in blocks without a gate, before the activation. */
  readonly up: Float32Array; // [n, F]
  /** What each neuron multiplies its column of `down` with. */
  readonly values: Float32Array; // [n, F]
}

/**
 * A block whose weights are arrays, for experiments and measurements. Programs are prepared when they are needed for the first
 * time; `close` frees their memory. One call at a time.
 */
export class FeedForwardBlock {
  readonly #backend: Backend;
  readonly #weights: FeedForwardWeights;
  readonly #maxTokens: number;
  #dense: Promise<BoundProgram> | undefined;
  #sparse: Promise<BoundProgram> | undefined;

  /** @throws {ShapeError} when an array does not have the size that the dims say */
  constructor({ backend, weights, maxTokens = 32 }: FeedForwardBlockOptions) {
    checkFeedForward(weights);
    this.#backend = backend;
    this.#weights = weights;
    this.#maxTokens = maxTokens;
  }

  /**
   * The output `[n, E]`, of all neurons or only of `ids`. What other neurons would add is left out.
   * @param x normed hidden states `[n, E]`
   * @throws {ShapeError | ArgumentError} for hidden states of another size and for neurons that are not there
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

  /** What all neurons compute. @param x `[n, E]` */
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
   * The norm of what each neuron adds to the output: `|act(gate x) * up x| * ||column of down||`, `[n, F]`. A SiLU neuron is
   * never exactly 0, so this and not its activation says whether it matters.
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
