/**
 * Gemma 4, the language model. Sandwich norms as in Gemma 3, `x += rms(attn(rms(x))); x += rms(ffn(rms(x)))`, then per-layer inputs
 * (`blocks/layer-inputs.ts`) and a factor of the hidden states per layer. Attention: RMS norms of the heads of q and k before the
 * rotation and of v without weights, and no scale. Layers without the sliding window have heads of another size, of which only the
 * first pairs are rotated; their values may be their keys before the norm. The last layers attend to the keys and values of the
 * last earlier layer of their type, and may have a wider FFN. With experts, the FFN is the sum of a dense one and of the experts,
 * each with norms of its own; the router reads `rms(h) * r / sqrt(E)`, and experts have factors.
 * Source: models/gemma4/modeling_gemma4.py of transformers 5.18.0; GGUF files: src/models/gemma4.cpp of llama.cpp.
 */
import type { ProgramTensor } from '@winnow/ops';
import {
  add,
  describeDecoder,
  gatedFeedForward,
  rmsNorm,
  rowPerToken,
  type DecoderDesign,
} from '../blocks/decoder-blocks.js';
import { expertFeedForward, expertTensors } from '../blocks/experts.js';
import { embedWithLayerInputs, layerInputTensors, ofLayerInput } from '../blocks/layer-inputs.js';
import { normedAttention, normedAttentionTensors, valueNormTables } from '../blocks/normed-attention.js';
import { localRotaries, type Rotary } from '../blocks/rotary.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { Architecture, ModelFile } from '../program/architecture.js';
import { ffnDimOf, type DecoderConfig } from '../program/config.js';
import { embedTokens, type DecoderStep } from '../program/decoder-program.js';
import { gatedFfnTensors, isDerivedTensor, outerTensors, tensorNames, type Names } from '../program/tensors.js';
import { multimodalParts, textPartOf } from '../settings/text-part.js';
import { gemmaEmbeddingScale } from './gemma-settings.js';
import { architecture, gemma4FromGguf, gemma4FromHub, type Gemma4Settings } from './gemma4-settings.js';
import { gemmaNorms } from './sandwich-blocks.js';

/** Norms of a layer with experts: of the results of the dense FFN and of the experts, and of what the experts read. */
const expertNorms: readonly Names[] = [
  ['post_ffw_norm_1', 'post_feedforward_layernorm_1'],
  ['post_ffw_norm_2', 'post_feedforward_layernorm_2'],
  ['pre_ffw_norm_2', 'pre_feedforward_layernorm_2'],
];

export const gemma4: Architecture = {
  name: architecture,
  models: 'Gemma 4 E2B, E4B, 12B, 26B-A4B and 31B, the language model of their multimodal checkpoints',
  limits: [
    'Only the language model of multimodal checkpoints is read.',
    'The table of per-layer inputs is in memory as a whole.',
    'Attention mass (`kvCache.eviction`) needs layers with equal numbers of KV heads.',
  ],
  ggufNames: [architecture],
  hubNames: ['gemma4_text', 'gemma4', 'gemma4_unified_text', 'gemma4_unified'],
  hubClass: 'Gemma4ForCausalLM',
  async describe(checkpoint) {
    const file = textPartOf(checkpoint, multimodalParts);
    const settings = file.format === 'gguf' ? await gemma4FromGguf(file) : gemma4FromHub(file);
    const { config, localRope, inputDim, finalCap } = settings;
    const weights = collectWeights(file.store, gemma4Tensors(file, settings), (name) => isDerivedTensor(name, config));
    const { rotaries, rotaryOfLayer } = localRotaries(file.fields, config, localRope);
    const scale = gemmaEmbeddingScale(config);
    return describeDecoder({
      config,
      weights,
      rotaries,
      constants: valueNormTables(config),
      embed: (step) => (inputDim === 0 ? embedTokens(step, scale) : embedWithLayerInputs(step, scale, inputDim)),
      norm: rmsNorm,
      layer: layerOf(inputDim, rotaryOfLayer),
      softCap: finalCap,
    });
  },
};

function layerOf(inputDim: number, rotaryOfLayer: (layer: number) => Rotary): DecoderDesign['layer'] {
  return (step, layer, input) => {
    const own = `blk.${layer}`;
    const attended = normedAttention(step, layer, rmsNorm(step, `${own}.attn_norm`, input), rotaryOfLayer(layer));
    const x = add(step, input, rmsNorm(step, `${own}.post_attention_norm`, attended));
    const dense = gatedFeedForward(step, layer, rmsNorm(step, `${own}.ffn_norm`, x));
    const fed = step.config.experts === undefined ? dense : addExperts(step, layer, x, dense);
    const y = add(step, x, rmsNorm(step, `${own}.post_ffw_norm`, fed));
    return scaledByLayer(step, layer, inputDim === 0 ? y : add(step, y, ofLayerInput(step, layer, y, inputDim)));
  };
}

/** The sum of the result of the dense FFN and of the experts for hidden states x. */
function addExperts(step: DecoderStep, layer: number, x: ProgramTensor, dense: ProgramTensor): ProgramTensor {
  const { b, config, weight } = step;
  const { experts, hiddenDim, normEps: eps } = config;
  if (experts === undefined) return dense;
  const own = `blk.${layer}`;
  const routerInput = (of: number): ProgramTensor => {
    const normed = b.activation('rms-norm', { x, weight: weight(`blk.${of}.ffn_gate_inp.scale`) }, { eps });
    return b.activation('scale', { x: normed }, { factor: 1 / Math.sqrt(hiddenDim) });
  };
  const read = rmsNorm(step, `${own}.pre_ffw_norm_2`, x);
  const routed = expertFeedForward(step, layer, read, experts, routerInput);
  return add(step, rmsNorm(step, `${own}.post_ffw_norm_1`, dense), rmsNorm(step, `${own}.post_ffw_norm_2`, routed));
}

/** Times the factor of the layer, which files store as a vector of one value. */
function scaledByLayer(step: DecoderStep, layer: number, x: ProgramTensor): ProgramTensor {
  const { b, optionalWeight } = step;
  const factor = optionalWeight(`blk.${layer}.layer_output_scale.weight`);
  if (factor === undefined) return x;
  return b.activation('scale-rows', { x, scales: rowPerToken(step, factor) });
}

function* gemma4Tensors(file: ModelFile, settings: Gemma4Settings): Generator<WeightRequest> {
  const { config, inputDim } = settings;
  const names = tensorNames(file);
  yield* outerTensors(file, config, {});
  if (inputDim > 0) yield* layerInputTensors(file, config, inputDim);
  for (let layer = 0; layer < config.numLayers; layer++) {
    const [own, hub] = [`blk.${layer}`, `model.layers.${layer}`];
    for (const [norm, hubNorm] of gemmaNorms) {
      yield* names.norm([`${own}.${norm}`, `${hub}.${hubNorm}`], config.hiddenDim, 'none');
    }
    yield* normedAttentionTensors(file, config, layer, hasOwnValues(file, settings, layer));
    yield* gatedFfnTensors(file, { ...config, ffnDim: ffnDimOf(config, layer) }, layer, {});
    const factor = `${own}.layer_output_scale.weight`;
    yield {
      name: factor,
      storedName: names.isHub ? `${hub}.layer_scalar` : factor,
      shape: [1],
      optional: !names.isHub,
    };
    if (config.experts !== undefined) yield* routedTensors(file, config, layer);
  }
}

/** GGUF files have no setting: layers whose values are their keys lack the matrix of the values. */
function hasOwnValues({ store }: ModelFile, { config, sharesValues }: Gemma4Settings, layer: number): boolean {
  if (config.windowedLayers?.[layer] !== false) return true;
  return sharesValues === undefined ? store.tensors.has(`blk.${layer}.attn_v.weight`) : !sharesValues;
}

function* routedTensors(file: ModelFile, config: DecoderConfig, layer: number): Generator<WeightRequest> {
  const { experts, hiddenDim } = config;
  if (experts === undefined) return;
  const names = tensorNames(file);
  const [own, hub] = [`blk.${layer}`, `model.layers.${layer}`];
  yield* expertTensors(file, config, experts, layer, { module: '', router: 'router.proj' });
  for (const [norm, hubNorm] of expertNorms) {
    yield* names.norm([`${own}.${norm}`, `${hub}.${hubNorm}`], hiddenDim, 'none');
  }
  const vector = (name: string, hubName: string, size: number): WeightRequest => ({
    name: `${own}.${name}`,
    storedName: names.isHub ? `${hub}.${hubName}` : `${own}.${name}`,
    shape: [size],
  });
  yield vector('ffn_gate_inp.scale', 'router.scale', hiddenDim);
  yield vector('ffn_down_exps.scale', 'router.per_expert_scale', experts.numExperts);
}
