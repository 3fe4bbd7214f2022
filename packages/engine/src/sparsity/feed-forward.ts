/** What a loaded model shows of its FFNs, for calibrations. */
import type { ActivationKind } from '@winnow/ops';
import type { NeuronRows } from '@winnow/sparse-inference';

/** A matrix of an FFN. */
export type FeedForwardMatrix = 'gate' | 'up' | 'down';

/** One FFN, but those of experts and those with adapters. */
export interface FeedForwardLayer {
  readonly layer: number;
  readonly activation: ActivationKind;
  readonly hiddenDim: number;
  readonly ffnDim: number;
  /** `down(act(gate x) * up x)`, or else `down(act(up x))`. */
  readonly isGated: boolean;
  readonly biases: readonly FeedForwardMatrix[];
  /** Bytes of the matrices as they are computed with. */
  readonly weightBytes: { readonly gate?: number; readonly up: number; readonly down: number };
  /** How they are stored where they are read neuron by neuron. */
  readonly rows: NeuronRows;
}

/** What one FFN saw in one step: rows of tokens, flat. */
export interface FeedForwardTrace {
  readonly layer: number;
  /** Index of the first token of the step. */
  readonly begin: number;
  readonly numTokens: number;
  /** `[numTokens, hiddenDim]`: its input, normed. */
  readonly x: Float32Array;
  /** `[numTokens, ffnDim]`: `gate x` with its bias, before the activation; absent without gate. */
  readonly gate?: Float32Array;
  /** `[numTokens, ffnDim]`: `up x` with its bias. */
  readonly up: Float32Array;
}

export interface FeedForwardAccess {
  /** A name for the weights in the model's file, whatever they are quantized to. */
  readonly weightsHash: string;
  /** Of all of their bytes. */
  readonly weightsChecksum: string;
  readonly layers: readonly FeedForwardLayer[];
  /** Rows `[begin, end)` of a matrix as it is computed with: `[ffnDim, hiddenDim]`, `down` `[hiddenDim, ffnDim]`. */
  readRows(layer: number, matrix: FeedForwardMatrix, begin: number, end: number): Promise<Float32Array>;
  /** `undefined` without one. */
  readBias(layer: number, matrix: FeedForwardMatrix): Promise<Float32Array | undefined>;
  /**
   * Runs the tokens of one text, in a sequence of their own, and shows layer by layer, step by step, what the FFNs see. No
   * other session may run.
   * @throws the signal's reason when aborted
   */
  trace(
    tokens: ArrayLike<number>,
    onLayer: (trace: FeedForwardTrace) => void | Promise<void>,
    options?: { readonly signal?: AbortSignal },
  ): Promise<void>;
}
