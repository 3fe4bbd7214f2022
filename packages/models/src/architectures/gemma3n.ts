/**
 * Gemma 3n, the language model: several streams of hidden states (`blocks/alternating-updates.ts`), of which layers compute one, h.
 * With `n = rms(h)`, `l = n + rms(R L n)` (LAuReL, arXiv:2411.07501): `a = (h + rms(attn(n)) + l) / sqrt(2)`, and
 * `a + rms(ffn(rms(a)))` corrects the streams. Then the corrected stream, times a vector, is gated by the layer's own input
 * (`blocks/layer-inputs.ts`) and added to the others. Attention as in Gemma 4, with one size of heads. In the FFN of the first
 * layers only gates g count that are far above the mean of their token: `relu(g - mean(g) - c * std(g))`.
 * Source: models/gemma3n/modeling_gemma3n.py of transformers 5.18.0.
 */
import type { ProgramTensor } from '@winnow/ops';
import {
  addToOthers,
  correctStreams,
  meanOf,
  mergeStreams,
  predictStreams,
  spreadStreams,
  streamTensors,
} from '../blocks/alternating-updates.js';
import {
  add,
  describeDecoder,
  gatedFeedForward,
  linear,
  rmsNorm,
  rowPerToken,
  scaled,
} from '../blocks/decoder-blocks.js';
import { embedWithLayerInputs, layerInputTensors, ofLayerInput } from '../blocks/layer-inputs.js';
import { normedAttention, normedAttentionTensors, onesName, onesOf } from '../blocks/normed-attention.js';
import { localRotaries, type Rotary } from '../blocks/rotary.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { Architecture, ModelFile } from '../program/architecture.js';
import { ffnDimOf, type RotaryDecoderConfig } from '../program/config.js';
import type { DecoderStep } from '../program/decoder-program.js';
import { gatedFfnTensors, isDerivedTensor, outerTensors, tensorNames } from '../program/tensors.js';
import { multimodalParts, textPartOf } from '../settings/text-part.js';
import { gemmaEmbeddingScale } from './gemma-settings.js';
import { gemma3nFromGguf, gemma3nFromHub, architecture, type Gemma3nSettings } from './gemma3n-settings.js';
import { gemmaNorms } from './sandwich-blocks.js';

export const gemma3n: Architecture = {
  name: architecture,
  models: 'Gemma 3n E2B and E4B, the language model of their multimodal checkpoints',
  limits: [
    'Only the language model of multimodal checkpoints is read; tokens of images and sound have no per-layer inputs.',
    'The table of per-layer inputs is in memory as a whole.',
    'Calibrations of sparse FFNs do not apply to layers that skip neurons themselves.',
    'The standard deviation of gates divides by n as in transformers; llama.cpp divides by n - 1.',
  ],
  ggufNames: [architecture],
  hubNames: ['gemma3n_text', 'gemma3n'],
  hubClass: 'Gemma3nForCausalLM',
  async describe(checkpoint) {
    const file = textPartOf(checkpoint, multimodalParts);
    const settings = file.format === 'gguf' ? await gemma3nFromGguf(file) : gemma3nFromHub(file);
    const { config, localRope, inputDim, inputRows, finalCap, streams } = settings;
    const weights = collectWeights(file.store, gemma3nTensors(file, settings), (name) => isDerivedTensor(name, config));
    const { rotaries, rotaryOfLayer } = localRotaries(file.fields, config, localRope);
    const scale = gemmaEmbeddingScale(config);
    return describeDecoder({
      config,
      weights,
      rotaries,
      constants: tablesOf(config, settings),
      embed: (step) => spreadStreams(step, embedWithLayerInputs(step, scale, inputDim, inputRows), streams),
      // the only norm outside of layers, before the output matrix: here the streams become one
      norm: (step, name, rows) => rmsNorm(step, name, mergeStreams(step, rows, streams)),
      layer: (step, layer, x) => writeLayer(step, layer, x, settings, rotaryOfLayer(layer)),
      softCap: finalCap,
    });
  },
};

function writeLayer(
  step: DecoderStep,
  layer: number,
  x: ProgramTensor,
  { streams, inputDim, scalesActive, cutoffs }: Gemma3nSettings,
  rotary: Rotary,
): ProgramTensor {
  const own = `blk.${layer}`;
  const predictions = predictStreams(step, layer, x, streams);
  const h = predictions[streams.active] as ProgramTensor;
  const normed = rmsNorm(step, `${own}.attn_norm`, h);
  const low = linear(step, `${own}.laurel_r`, linear(step, `${own}.laurel_l`, normed));
  const laurel = add(step, rmsNorm(step, `${own}.laurel_post_norm`, low), normed);
  const attended = rmsNorm(step, `${own}.post_attention_norm`, normedAttention(step, layer, normed, rotary));
  const a = scaled(step, add(step, add(step, h, attended), laurel), Math.SQRT1_2);
  const fed = feedForward(step, layer, rmsNorm(step, `${own}.ffn_norm`, a), cutoffs[layer] ?? -Infinity);
  const computed = add(step, a, rmsNorm(step, `${own}.post_ffw_norm`, fed));
  const corrected = correctStreams(step, layer, predictions, computed, streams);
  const first = corrected[streams.active] as ProgramTensor;
  const read = scalesActive ? timesVector(step, `${own}.altup_correct_scale`, first) : first;
  return addToOthers(step, corrected, ofLayerInput(step, layer, read, inputDim));
}

/** Each row times a weight vector. */
function timesVector(step: DecoderStep, name: string, x: ProgramTensor): ProgramTensor {
  return step.b.activation('multiply', { a: x, b: rowPerToken(step, step.weight(`${name}.weight`)) });
}

/** Name of the table of the shift of a layer's gates in units of their standard deviation. */
function cutoffName(layer: number): string {
  return `blk.${layer}.ffn_cutoff`;
}

function tablesOf(config: RotaryDecoderConfig, { cutoffs }: Gemma3nSettings): [name: string, values: Float32Array][] {
  const tables = new Map(onesOf([config.headDim, config.hiddenDim]));
  for (const [layer, cutoff] of cutoffs.entries()) {
    if (cutoff === -Infinity) continue;
    const size = ffnDimOf(config, layer);
    tables.set(onesName(size), new Float32Array(size).fill(1));
    tables.set(cutoffName(layer), new Float32Array(size).fill(-cutoff));
  }
  return [...tables];
}

function feedForward(step: DecoderStep, layer: number, x: ProgramTensor, cutoff: number): ProgramTensor {
  if (cutoff === -Infinity) return gatedFeedForward(step, layer, x);
  const { b, config, constant } = step;
  const own = `blk.${layer}`;
  const size = ffnDimOf(config, layer);
  const gate = linear(step, `${own}.ffn_gate`, x);
  const weight = constant(onesName(size));
  const normed = b.activation('layer-norm', { x: gate, weight }, { eps: 1e-12 });
  const deviation = meanOf(step, b.activation('multiply', { a: normed, b: gate }));
  const bias = constant(cutoffName(layer));
  const shifted = b.activation('layer-norm', { x: gate, weight, bias }, { eps: 1e-12 });
  const kept = b.activation('activation', { x: shifted }, { kind: 'relu' });
  const above = b.activation('scale-rows', { x: kept, scales: deviation });
  const up = linear(step, `${own}.ffn_up`, x);
  return linear(step, `${own}.ffn_down`, b.activation('glu', { gate: above, up }, { kind: config.activation }));
}

function* gemma3nTensors(file: ModelFile, settings: Gemma3nSettings): Generator<WeightRequest> {
  const { config, inputDim, inputRows, streams, laurelDim } = settings;
  const { hiddenDim } = config;
  const names = tensorNames(file);
  yield* outerTensors(file, config, {});
  yield* layerInputTensors(file, { ...config, vocabSize: inputRows }, inputDim);
  yield* streamTensors(file, config, streams);
  for (let layer = 0; layer < config.numLayers; layer++) {
    const [own, hub] = [`blk.${layer}`, `model.layers.${layer}`];
    for (const [norm, hubNorm] of gemmaNorms)
      yield* names.norm([`${own}.${norm}`, `${hub}.${hubNorm}`], hiddenDim, 'none');
    yield* normedAttentionTensors(file, config, layer, true);
    yield* gatedFfnTensors(file, { ...config, ffnDim: ffnDimOf(config, layer) }, layer, {});
    yield* names.matrix([`${own}.laurel_l`, `${hub}.laurel.linear_left`], [laurelDim, hiddenDim], 'none');
    yield* names.matrix([`${own}.laurel_r`, `${hub}.laurel.linear_right`], [hiddenDim, laurelDim], 'none');
    yield* names.norm([`${own}.laurel_post_norm`, `${hub}.laurel.post_laurel_norm`], hiddenDim, 'none');
  }
}
