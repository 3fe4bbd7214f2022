/** Passes the FFN of a layer to the program's FFN lowering, and defines the neuron-major forms of its matrices. */
import type { LayerFeedForward, ProgramTensor } from '@winnow/ops';
import { interleavedView } from '../file/interleaved-view.js';
import { transposedWeight } from '../file/transposed-weight.js';
import type { Weight } from '../file/weights.js';
import { loraNames } from '../lora/add-adapters.js';
import { ffnDimOf } from '../program/config.js';
import type { DecoderStep } from '../program/decoder-program.js';

/** Names of a layer's FFN matrices, without `.weight` and `.bias`. */
export function feedForwardNames(layer: number): { readonly gate: string; readonly up: string; readonly down: string } {
  const own = `blk.${layer}`;
  return { gate: `${own}.ffn_gate`, up: `${own}.ffn_up`, down: `${own}.ffn_down` };
}

/** Name of the down matrix with one row per neuron: `[F, E]` instead of `[E, F]`. */
export function downRowsName(layer: number): string {
  return `${feedForwardNames(layer).down}.weight.rows`;
}

/** Name of the three matrices interleaved per neuron: `[F, 3, E]`. */
function neuronsName(layer: number): string {
  return `${feedForwardNames(layer).down}.weight.neurons`;
}

/** Name of the transpose `[E, F]` of a matrix `[F, E]`. */
function columnsName(name: string): string {
  return `${name}.weight.columns`;
}

/** Layers with adapters on their FFN stay dense, because adapters need all neurons. */
function isAdapted({ hasWeight }: DecoderStep, names: readonly string[]): boolean {
  return names.some((name) => hasWeight(loraNames(name).a));
}

/** Appends the FFN of a layer with the program's FFN lowering, if it has one. */
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
  /** Getters, so that only the weights that the lowering reads are declared. */
  const bias = (key: 'gateBias' | 'upBias' | 'downBias', name: string): Pick<LayerFeedForward, typeof key> =>
    step.hasWeight(`${name}.bias`) ? { [key]: () => weight(`${name}.bias`) } : {};
  return feedForward(b, {
    layer,
    x,
    activation: config.activation,
    hiddenDim: config.hiddenDim,
    ffnDim: ffnDimOf(config, layer),
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
 * Adds the transposed matrices of all FFNs to the weights of a description, for programs whose `feedForward` reads
 * them: `down`, `gate` and `up`, each transposed by `transposedWeight` and, if they share a dtype, interleaved per
 * neuron. Only the forms that a program declares take memory.
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
    // a matrix whose stored layout differs would have to be converted
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
