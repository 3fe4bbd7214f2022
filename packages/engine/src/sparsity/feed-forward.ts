/** Access to the FFNs of a loaded model, for calibration. */
import type { ActivationKind } from '@winnow/ops';
import type { NeuronRows } from '@winnow/sparse-inference';

/** A matrix of an FFN. */
export type FeedForwardMatrix = 'gate' | 'up' | 'down';

/** One FFN; those with experts or adapters are not included. */
export interface FeedForwardLayer {
  readonly layer: number;
  readonly activation: ActivationKind;
  readonly hiddenDim: number;
  readonly ffnDim: number;
  /** `down(act(gate x) * up x)` if true, else `down(act(up x))`. */
  readonly isGated: boolean;
  readonly biases: readonly FeedForwardMatrix[];
  /** Bytes of the matrices in their loaded dtypes. */
  readonly weightBytes: { readonly gate?: number; readonly up: number; readonly down: number };
  /** Their layout if they are read neuron by neuron. */
  readonly rows: NeuronRows;
}

/** The values of one FFN in one step, as flat rows of tokens. */
export interface FeedForwardTrace {
  readonly layer: number;
  /** Index of the first token of the step. */
  readonly begin: number;
  readonly numTokens: number;
  /** `[numTokens, hiddenDim]`: its normalized input. */
  readonly x: Float32Array;
  /** `[numTokens, ffnDim]`: `gate x` with its bias, before the activation; undefined without a gate. */
  readonly gate?: Float32Array;
  /** `[numTokens, ffnDim]`: `up x` with its bias. */
  readonly up: Float32Array;
}

export interface FeedForwardAccess {
  /** A hash of the weights in the model's file, independent of `quantize`. */
  readonly weightsHash: string;
  /** A checksum of all of their bytes. */
  readonly weightsChecksum: string;
  readonly layers: readonly FeedForwardLayer[];
  /** Rows `[begin, end)` of a matrix as loaded: `[ffnDim, hiddenDim]`, `down` `[hiddenDim, ffnDim]`. */
  readRows(layer: number, matrix: FeedForwardMatrix, begin: number, end: number): Promise<Float32Array>;
  /** `undefined` without one. */
  readBias(layer: number, matrix: FeedForwardMatrix): Promise<Float32Array | undefined>;
  /**
   * Runs the tokens of one text in a new sequence and reports the FFN values layer by layer, step by step. No other
   * session may run.
   * @throws the signal's reason when aborted
   */
  trace(
    tokens: ArrayLike<number>,
    onLayer: (trace: FeedForwardTrace) => void | Promise<void>,
    options?: { readonly signal?: AbortSignal },
  ): Promise<void>;
}
