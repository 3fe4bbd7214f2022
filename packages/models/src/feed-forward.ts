/** Hands the FFN of a layer to the writer of a program, and knows its matrices neuron by neuron. */
import type { LayerFeedForward, ProgramTensor } from '@winnow/ops';
import { loraNames } from './add-adapters.js';
import type { DecoderStep } from './decoder-program.js';
import { interleavedView } from './interleaved-view.js';
import { transposedWeight } from './transposed-weight.js';
import type { Weight } from './weights.js';

/** Names of a layer's FFN matrices, without `.weight` and `.bias`. */
export function feedForwardNames(layer: number): { readonly gate: string; readonly up: string; readonly down: string } {
  const own = `blk.${layer}`;
  return { gate: `${own}.ffn_gate`, up: `${own}.ffn_up`, down: `${own}.ffn_down` };
}

/** Name of the down matrix with one row per neuron: `[F, E]` instead of `[E, F]`. */
export function downRowsName(layer: number): string {
  return `${feedForwardNames(layer).down}.weight.rows`;
}

/** Name of the three matrices side by side, neuron by neuron: `[F, 3, E]`. */
function neuronsName(layer: number): string {
  return `${feedForwardNames(layer).down}.weight.neurons`;
}

/** Name of a matrix `[F, E]` input by input: `[E, F]`. */
function columnsName(name: string): string {
  return `${name}.weight.columns`;
}

/** Layers with adapters on their FFN stay as they are: what adapters add needs all neurons. */
function isAdapted({ hasWeight }: DecoderStep, names: readonly string[]): boolean {
  return names.some((name) => hasWeight(loraNames(name).a));
}

/** The records of a layer's FFN: by the program's writer, if it has one. */
export function lowerFeedForward(
  step: DecoderStep,
  layer: number,
  x: ProgramTensor,
  isGated: boolean,
  lowerDense: () => ProgramTensor,
): ProgramTensor {
  const { b, config, feedForward, weight } = step;
  const { gate, up, down } = feedForwardNames(layer);
  if (feedForward === undefined || isAdapted(step, isGated ? [gate, up, down] : [up, down])) return lowerDense();
  /** Declares nothing before it is asked for. */
  const bias = (key: 'gateBias' | 'upBias' | 'downBias', name: string): Pick<LayerFeedForward, typeof key> =>
    step.hasWeight(`${name}.bias`) ? { [key]: () => weight(`${name}.bias`) } : {};
  return feedForward(b, {
    layer,
    x,
    activation: config.activation,
    hiddenDim: config.hiddenDim,
    ffnDim: config.ffnDim,
    ...(isGated
      ? {
          gate: () => weight(`${gate}.weight`),
          gateColumns: () => weight(columnsName(gate)),
          ...bias('gateBias', gate),
        }
      : {}),
    up: () => weight(`${up}.weight`),
    upColumns: () => weight(columnsName(up)),
    ...bias('upBias', up),
    down: () => weight(`${down}.weight`),
    downRows: () => weight(downRowsName(layer)),
    ...(isGated && step.hasWeight(neuronsName(layer)) && ![gate, up].some((name) => step.hasWeight(`${name}.bias`))
      ? { neurons: () => weight(neuronsName(layer)) }
      : {}),
    ...bias('downBias', down),
    lowerDense,
  });
}

/**
 * Adds the transposed matrices of all FFNs to the weights of a description, for programs with a `feedForward` that reads them:
 * `down` neuron by neuron, `gate` and `up` input by input, stored as `transposedWeight` does, and where all three then have one type
 * the rows of each neuron side by side. Programs have those that they read:
 * a matrix that nobody reads in one form takes no memory in it.
 */
export function addTransposedMatrices(weights: Map<string, Weight>, numLayers: number): void {
  for (let layer = 0; layer < numLayers; layer++) {
    const { gate, up, down } = feedForwardNames(layer);
    for (const [from, to] of [
      [down, downRowsName(layer)],
      [gate, columnsName(gate)],
      [up, columnsName(up)],
    ] as const) {
      const weight = weights.get(`${from}.weight`);
      if (weight === undefined || weight.shape.length !== 2) continue;
      const stored = transposedWeight(weight.stored, weight.dtype);
      const { dtype, shape, sizeBytes } = stored;
      weights.set(to, { name: to, shape, dtype, sizeBytes, stored });
    }
    const parts = [weights.get(`${gate}.weight`), weights.get(`${up}.weight`), weights.get(downRowsName(layer))];
    const [first] = parts;
    // what is stored in another way than it is computed with would have to be converted
    const isSame = parts.every((part) => part?.dtype === first?.dtype && part?.stored.dtype === part?.dtype);
    if (first === undefined || !isSame || first.shape.length !== 2) continue;
    const name = neuronsName(layer);
    const stored = interleavedView(
      name,
      parts.map((part) => (part as Weight).stored),
    );
    const { dtype, shape, sizeBytes } = stored;
    weights.set(name, { name, shape, dtype, sizeBytes, stored });
  }
}
