/** Per-layer inputs of Gemma 3n and 4: a second table has a vector per layer for each token, which the layer gates. */
import type { ProgramTensor } from '@winnow/ops';
import type { WeightRequest } from '../file/weights.js';
import type { ModelFile } from '../program/architecture.js';
import type { DecoderConfig } from '../program/config.js';
import { embedTokens, type DecoderStep } from '../program/decoder-program.js';
import { tensorNames } from '../program/tensors.js';
import { add, linear, rmsNorm } from './decoder-blocks.js';

const inputs = new WeakMap<DecoderStep, ProgramTensor>();

/**
 * Embeds the step's tokens, and computes the inputs of all layers: `(rms(W x / sqrt(E)) + sqrt(P) t) / sqrt(2)` for embeddings x
 * `[T, E]` and rows t of the second table, `[T, layers * P]`.
 * @param numRows of that table; tokens beyond it, which text does not have, get the last row. Default: those of the vocabulary
 */
export function embedWithLayerInputs(
  step: DecoderStep,
  scale: number,
  inputDim: number,
  numRows: number = step.config.vocabSize,
): ProgramTensor {
  const x = embedTokens(step, scale);
  const { b, config, weight } = step;
  const { numLayers, hiddenDim } = config;
  const table = weight('per_layer_token_embd.weight');
  const tokens =
    numRows < config.vocabSize
      ? b.activation('clamp-positions', { positions: step.tokens() }, { limit: numRows - 1 })
      : step.tokens();
  const rows = b.activation('embedding-lookup', { table, tokens }, { scale: Math.sqrt(inputDim) });
  const product = linear(step, 'per_layer_model_proj', x);
  const scaled = b.activation('scale', { x: product }, { factor: 1 / Math.sqrt(hiddenDim) });
  const normed = rmsNorm(step, 'per_layer_proj_norm', b.reshape(scaled, ['T', numLayers, inputDim]));
  const sum = add(step, b.reshape(normed, ['T', numLayers * inputDim]), rows);
  inputs.set(step, b.activation('scale', { x: sum }, { factor: Math.SQRT1_2 }));
  return x;
}

/** `rms(W2 (act(W1 x) * input))`, with the input of the layer. */
export function ofLayerInput(step: DecoderStep, layer: number, x: ProgramTensor, inputDim: number): ProgramTensor {
  const { b, config } = step;
  const own = `blk.${layer}`;
  const all = inputs.get(step) as ProgramTensor;
  const up = b.activation('slice-columns', { x: all }, { begin: layer * inputDim, length: inputDim });
  const gate = linear(step, `${own}.inp_gate`, x);
  const gated = b.activation('glu', { gate, up }, { kind: config.activation });
  return rmsNorm(step, `${own}.post_norm`, linear(step, `${own}.proj`, gated));
}

export function* layerInputTensors(file: ModelFile, config: DecoderConfig, inputDim: number): Generator<WeightRequest> {
  const { vocabSize, hiddenDim, numLayers } = config;
  const names = tensorNames(file);
  const allDim = numLayers * inputDim;
  yield* names.matrix(['per_layer_token_embd', 'model.embed_tokens_per_layer'], [vocabSize, allDim], 'none');
  yield* names.matrix(['per_layer_model_proj', 'model.per_layer_model_projection'], [allDim, hiddenDim], 'none');
  yield* names.norm(['per_layer_proj_norm', 'model.per_layer_projection_norm'], inputDim, 'none');
  for (let layer = 0; layer < numLayers; layer++) {
    const [own, hub] = [`blk.${layer}`, `model.layers.${layer}`];
    yield* names.matrix([`${own}.inp_gate`, `${hub}.per_layer_input_gate`], [inputDim, hiddenDim], 'none');
    yield* names.matrix([`${own}.proj`, `${hub}.per_layer_projection`], [hiddenDim, inputDim], 'none');
    yield* names.norm([`${own}.post_norm`, `${hub}.post_per_layer_input_norm`], hiddenDim, 'none');
  }
}
