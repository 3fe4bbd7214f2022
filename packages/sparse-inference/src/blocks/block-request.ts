/** FFNs in standalone programs: their weights as external tensors, and the ops of the dense block. */
import type { LayerFeedForward, ProgramBuilder, ProgramTensor } from '@winnow/ops';
import { bytesOf } from '../bytes.js';
import { transpose } from '../training/matrix-products.js';
import type { FeedForwardWeights } from './feed-forward-weights.js';

/** The tensors of a dense block. */
export interface DenseBlock {
  /** Before the activation, with bias, `[T, F]`. */
  readonly gate: ProgramTensor | undefined;
  readonly up: ProgramTensor;
  /** `act(gate x) * up x`, or `act(up x)`, `[T, F]`. */
  readonly values: ProgramTensor;
}

/** Appends the activations of all neurons, the coefficients of the columns of `down`. */
export function lowerValues(b: ProgramBuilder, request: LayerFeedForward): DenseBlock {
  const { x, activation: kind, gate: gateWeight, gateBias, up: upWeight, upBias } = request;
  const up = b.activation('matmul', { x, weight: upWeight(), bias: upBias?.() });
  const gate = gateWeight && b.activation('matmul', { x, weight: gateWeight(), bias: gateBias?.() });
  const values =
    gate === undefined ? b.activation('activation', { x: up }, { kind }) : b.activation('glu', { gate, up }, { kind });
  return { gate, up, values };
}

/** Appends the projection from the values of all neurons to the hidden state. */
export function lowerDown(b: ProgramBuilder, request: LayerFeedForward, values: ProgramTensor): ProgramTensor {
  return b.activation('matmul', { x: values, weight: request.down(), bias: request.downBias?.() });
}

/**
 * Presents a block of arrays to a lowering. Each weight becomes an external tensor when the lowering reads it.
 * @param contents receives the bytes of these tensors by name
 */
export function blockRequest(
  b: ProgramBuilder,
  weights: FeedForwardWeights,
  x: ProgramTensor,
  contents: Map<string, Uint8Array>,
): LayerFeedForward {
  const { hiddenDim, ffnDim, activation, gate, up, upBias, down, downBias } = weights;
  const add = (name: string, values: Float32Array, shape: readonly number[]): ProgramTensor => {
    contents.set(name, bytesOf(values));
    return b.external(name, 'weights', 'f32', shape);
  };
  const [rows, columns] = [
    [ffnDim, hiddenDim],
    [hiddenDim, ffnDim],
  ];
  const request: LayerFeedForward = {
    ...{ layer: 0, x, activation, hiddenDim, ffnDim },
    up: () => add('up', up, rows),
    upColumns: () => add('up.columns', transpose(up, ffnDim, hiddenDim), columns),
    ...(upBias === undefined ? {} : { upBias: () => add('up.bias', upBias, [ffnDim]) }),
    ...(gate === undefined
      ? {}
      : {
          gate: () => add('gate', gate, rows),
          gateColumns: () => add('gate.columns', transpose(gate, ffnDim, hiddenDim), columns),
        }),
    down: () => add('down', down, columns),
    downRows: () => add('down.rows', transpose(down, hiddenDim, ffnDim), rows),
    ...(downBias === undefined ? {} : { downBias: () => add('down.bias', downBias, [hiddenDim]) }),
    lowerDense: () => lowerDown(b, request, lowerValues(b, request).values),
  };
  return request;
}
