/**
 * The model interface of a calibration. `model.feedForward` of `@winnow/engine` implements it, and `plainSource` does
 * for arrays.
 */
import { runPointwise, type Backend } from '@winnow/ops';
import { ArgumentError } from '@winnow/tensor';
import type { NeuronRows } from '../sidecar/sidecar.js';
import { FeedForwardBlock } from '../blocks/feed-forward-block.js';
import { checkFeedForward, type FeedForwardShape, type FeedForwardWeights } from '../blocks/feed-forward-weights.js';

/** An FFN of the model. */
export interface CalibrationLayer extends FeedForwardShape {
  /** Index in the model. */
  readonly layer: number;
  /** Bytes of weights that a token reads with all neurons. Default: as f16. */
  readonly weightBytes?: { readonly gate?: number; readonly up: number; readonly down: number };
  /** For `breakEvenOf`. Default: by these bytes. */
  readonly rows?: NeuronRows;
}

/** The values of one block for a piece of text. The arrays are valid until the callback returns. */
export interface FeedForwardTrace {
  readonly layer: number;
  readonly numTokens: number;
  /** Normalized hidden states, the input of the block. */
  readonly x: Float32Array; // [n, E]
  /** Before the activation, with bias; only of gated blocks. */
  readonly gate?: Float32Array; // [n, F]
  /** With bias; before the activation in blocks without a gate. */
  readonly up: Float32Array; // [n, F]
}

export interface CalibrationSource {
  /** Hash of the weights. */
  readonly weightsHash: string;
  /** Checksum of all of their bytes, to detect damaged files later. */
  readonly weightsChecksum?: string;
  readonly layers: readonly CalibrationLayer[];
  /** Dequantized rows `[begin, end)` of gate or up `[F, E]`, or of down `[E, F]`. */
  readRows(layer: number, part: 'gate' | 'up' | 'down', begin: number, end: number): Promise<Float32Array>;
  readBias(layer: number, part: 'gate' | 'up' | 'down'): Promise<Float32Array | undefined>;
  /** Runs the model over a text and reports the values of every block. */
  trace(
    tokens: ArrayLike<number>,
    onLayer: (trace: FeedForwardTrace) => void | Promise<void>,
    options?: { readonly signal?: AbortSignal },
  ): Promise<void>;
}

/** Blocks of arrays instead of a model. */
export interface PlainSourceOptions {
  /** The backend that runs the blocks. */
  readonly backend: Backend;
  readonly blocks: readonly FeedForwardWeights[];
  /** The hidden state `[E]` that enters block `layer` at a token. */
  readonly hiddenState: (token: number, layer: number) => Float32Array;
  /** Default: `plain`. */
  readonly weightsHash?: string;
}

/** A source over blocks of arrays, for experiments and tests. */
export function plainSource({
  backend,
  blocks,
  hiddenState,
  weightsHash = 'plain',
}: PlainSourceOptions): CalibrationSource {
  blocks.forEach(checkFeedForward);
  const block = (layer: number): FeedForwardWeights => {
    const found = blocks[layer];
    if (found !== undefined) return found;
    throw new ArgumentError({ argument: 'layer', expected: `below ${blocks.length}`, actual: String(layer) });
  };
  return {
    weightsHash,
    layers: blocks.map(({ hiddenDim, ffnDim, activation, gate }, layer) => {
      return { layer, hiddenDim, ffnDim, activation, isGated: gate !== undefined };
    }),
    readRows(layer, part, begin, end) {
      const { hiddenDim, ffnDim, [part]: matrix } = block(layer);
      const length = part === 'down' ? ffnDim : hiddenDim;
      return Promise.resolve((matrix ?? new Float32Array()).slice(begin * length, end * length));
    },
    readBias(layer, part) {
      const { upBias, downBias } = block(layer);
      return Promise.resolve(part === 'up' ? upBias : part === 'down' ? downBias : undefined);
    },
    async trace(tokens, onLayer, { signal } = {}) {
      for (const [layer, weights] of blocks.entries()) {
        signal?.throwIfAborted();
        await using program = new FeedForwardBlock({ backend, weights });
        const x = new Float32Array(tokens.length * weights.hiddenDim);
        for (let t = 0; t < tokens.length; t++) x.set(hiddenState(tokens[t], layer), t * weights.hiddenDim);
        const { gate, up } = await program.values(x);
        await onLayer({ layer, numTokens: tokens.length, x, up, ...(gate === undefined ? {} : { gate }) });
      }
    },
  };
}

/** The activation of each neuron, `[n, F]`: `act(gate) * up`, or `act(up)`. */
export function neuronValues(
  { activation: kind }: Pick<FeedForwardShape, 'activation'>,
  gate: Float32Array | undefined,
  up: Float32Array,
): Float32Array {
  const values = new Float32Array(up.length);
  if (gate === undefined) runPointwise('activation', { x: up }, values, { kind });
  else runPointwise('glu', { gate, up }, values, { kind });
  return values;
}
