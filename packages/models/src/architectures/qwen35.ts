/**
 * Qwen 3.5: most layers mix tokens with a gated delta rule (arXiv:2412.06464), every fourth with gated attention: `x +=
 * mix(rms(x)); x += ffn(rms(x))`. The norm before the FFN is called `post_attention_norm`.
 */
import type { ProgramTensor } from '@winnow/ops';
import { add, describeDecoder, linear, rmsNorm } from '../blocks/decoder-blocks.js';
import { expertTensors, feedForwardOf } from '../blocks/experts.js';
import { rotaryOf, type Rotary } from '../blocks/rotary.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { Architecture, ModelDescription, ModelFile } from '../program/architecture.js';
import type { DecoderConfig } from '../program/config.js';
import type { DecoderStep } from '../program/decoder-program.js';
import {
  gatedFfnTensors,
  headNormTensors,
  isDerivedTensor,
  isPredictorTensor,
  outerTensors,
  tensorNames,
  usualNorm,
  type Names,
  type UsualTensors,
} from '../program/tensors.js';
import {
  languageModel,
  settingsFromGguf,
  settingsFromHub,
  type DeltaConfig,
  type Qwen35Settings,
  type Qwen35Variant,
} from './qwen35-settings.js';

export const qwen35: Architecture = {
  name: 'qwen35',
  models: 'Qwen 3.5 (dense), also the language model of multimodal checkpoints',
  limits: ['Multi-token prediction layers (`mtp`, `nextn`) are ignored.'],
  ggufNames: ['qwen35'],
  hubNames: ['qwen3_5_text', 'qwen3_5'],
  hubClass: 'Qwen3_5ForCausalLM',
  preTokenizer: 'qwen35',
  describe: (file) => describeQwen35(file, { architecture: 'qwen35', hasExperts: false, isFusedByHead: false }),
};

export async function describeQwen35(whole: ModelFile, variant: Qwen35Variant): Promise<ModelDescription> {
  const file = languageModel(whole);
  const settings = file.format === 'gguf' ? await settingsFromGguf(file, variant) : settingsFromHub(file, variant);
  const { config, delta, experts } = settings;
  const weights = collectWeights(file.store, requests(file, settings), (name) => {
    return isDerivedTensor(name, config) || isPredictorTensor(name, config);
  });
  const rotary = rotaryOf(file.fields, config.rope);
  const feedForward = feedForwardOf(experts);
  return describeDecoder({
    config: experts === undefined ? config : { ...config, experts },
    weights,
    rotaries: [rotary],
    norm: rmsNorm,
    layer(step, layer, input) {
      const normed = rmsNorm(step, `blk.${layer}.attn_norm`, input);
      const mixed = isRecurrent(settings, layer)
        ? deltaMixer(step, layer, normed, delta)
        : gatedAttention(step, layer, normed, rotary);
      const x = add(step, input, mixed);
      return add(step, x, feedForward(step, layer, rmsNorm(step, `blk.${layer}.post_attention_norm`, x)));
    },
  });
}

function isRecurrent({ config }: Qwen35Settings, layer: number): boolean {
  return config.recurrentLayers?.[layer] === true;
}

/** Each head of `attn_q` produces a query and a gate; the gate multiplies the head's attention output. */
function gatedAttention(step: DecoderStep, layer: number, x: ProgramTensor, rotary: Rotary): ProgramTensor {
  const { b, config, positions } = step;
  const { numHeads, numKvHeads, headDim } = config;
  const own = `blk.${layer}`;
  const both = b.reshape(linear(step, `${own}.attn_q`, x), ['T', numHeads, 2 * headDim]);
  const part = (begin: number): ProgramTensor => b.activation('slice-columns', { x: both }, { begin, length: headDim });
  const query = rmsNorm(step, `${own}.attn_q_norm`, part(0));
  const gate = part(headDim);
  const heads = (name: string): ProgramTensor => b.reshape(linear(step, name, x), ['T', numKvHeads, headDim]);
  const k = rotary.rotate(step, rmsNorm(step, `${own}.attn_k_norm`, heads(`${own}.attn_k`)), positions);
  const y = step.attend(layer, {
    q: rotary.rotate(step, query, positions),
    k,
    v: heads(`${own}.attn_v`),
    scale: 1 / Math.sqrt(headDim),
    rotateQuery: (at) => rotary.rotate(step, query, at),
  });
  const gated = b.activation('glu', { gate, up: y }, { kind: 'sigmoid' });
  return linear(step, `${own}.attn_output`, b.reshape(gated, ['T', numHeads * headDim]));
}

/** Convolution of q, k and v, the gated delta rule, an RMS norm of each head times `silu(z)`, output projection. */
function deltaMixer(step: DecoderStep, layer: number, x: ProgramTensor, delta: DeltaConfig): ProgramTensor {
  const { b, config, weight } = step;
  const { numKeyHeads, numValueHeads, keyDim, valueDim, numTaps, heads } = delta;
  const own = `blk.${layer}`;
  const numChannels = channelsOf(delta);
  const mixed = linear(step, `${own}.attn_qkv`, x);
  const z = linear(step, `${own}.attn_gate`, x);
  const taps = b.reshape(weight(`${own}.ssm_conv1d.weight`), [numChannels, numTaps]);
  const convolved = b.append(
    'short-conv',
    { x: mixed, weight: taps, ...step.stateInputs() },
    { activation: 'silu' },
    { state: step.state(layer, 'conv', [numTaps - 1, numChannels]) },
  );
  const recalled = b.append(
    'gated-delta',
    {
      qkv: convolved['y'] as ProgramTensor,
      alpha: linear(step, `${own}.ssm_alpha`, x),
      beta: linear(step, `${own}.ssm_beta`, x),
      alphaBias: weight(`${own}.ssm_dt.bias`),
      decay: weight(`${own}.ssm_a`),
      ...step.stateInputs(),
    },
    { numKeyHeads, eps: config.normEps, heads },
    { state: step.state(layer, 'memory', [numValueHeads, valueDim, keyDim]) },
  );
  const normed = rmsNorm(step, `${own}.ssm_norm`, recalled['y'] as ProgramTensor);
  const gate = b.reshape(z, ['T', numValueHeads, valueDim]);
  const y = b.activation('glu', { gate, up: normed }, { kind: 'silu' });
  return linear(step, `${own}.ssm_out`, b.reshape(y, ['T', numValueHeads * valueDim]));
}

function channelsOf({ numKeyHeads, numValueHeads, keyDim, valueDim }: DeltaConfig): number {
  return 2 * numKeyHeads * keyDim + numValueHeads * valueDim;
}

/** Hugging Face checkpoints store `w - 1` as norm weights, except for the gated norm. */
const usual: UsualTensors = { normsLackOne: true };

function* requests(file: ModelFile, settings: Qwen35Settings): Generator<WeightRequest> {
  const { config, delta, experts } = settings;
  const { hiddenDim, numHeads, numKvHeads, headDim, numLayers } = config;
  const names = tensorNames(file);
  yield* outerTensors(file, config, usual);
  for (let layer = 0; layer < numLayers; layer++) {
    const [own, hub] = [`blk.${layer}`, `model.layers.${layer}`];
    yield* usualNorm(file, [`${own}.attn_norm`, `${hub}.input_layernorm`], hiddenDim, usual);
    yield* usualNorm(file, [`${own}.post_attention_norm`, `${hub}.post_attention_layernorm`], hiddenDim, usual);
    if (isRecurrent(settings, layer)) yield* deltaTensors(file, config, delta, layer);
    else {
      const matrix = (pair: Names, numOutputs: number, numInputs: number): WeightRequest[] =>
        names.matrix([`${own}.${pair[0]}`, `${hub}.self_attn.${pair[1]}`], [numOutputs, numInputs], 'optional');
      yield* matrix(['attn_q', 'q_proj'], 2 * numHeads * headDim, hiddenDim);
      yield* matrix(['attn_k', 'k_proj'], numKvHeads * headDim, hiddenDim);
      yield* matrix(['attn_v', 'v_proj'], numKvHeads * headDim, hiddenDim);
      yield* matrix(['attn_output', 'o_proj'], hiddenDim, numHeads * headDim);
      yield* headNormTensors(file, config, layer, usual);
    }
    if (experts === undefined || experts.layers[layer] === false) yield* gatedFfnTensors(file, config, layer, {});
    else yield* expertTensors(file, config, experts, layer);
  }
}

function* deltaTensors(
  file: ModelFile,
  config: DecoderConfig,
  delta: DeltaConfig,
  layer: number,
): Generator<WeightRequest> {
  const names = tensorNames(file);
  const { isHub } = names;
  const { hiddenDim } = config;
  const { numKeyHeads, numValueHeads, valueDim, numTaps, isFusedByHead } = delta;
  const [own, hub] = [`blk.${layer}`, `model.layers.${layer}.linear_attn`];
  const numChannels = channelsOf(delta);
  const matrix = (pair: Names, numOutputs: number, numInputs: number): WeightRequest[] =>
    names.matrix([`${own}.${pair[0]}`, `${hub}.${pair[1]}`], [numOutputs, numInputs], 'none');
  const dependsOnFormat = !isFusedByHead && numKeyHeads < numValueHeads; // see `heads` of `DeltaConfig`
  const matrices = [
    ...inputTensors(file, config, delta, layer),
    ...matrix(['ssm_out', 'out_proj'], hiddenDim, numValueHeads * valueDim),
  ];
  yield* dependsOnFormat ? matrices.map((each) => ({ ...each, order: { dependsOnFormat } })) : matrices;
  yield* names.norm([`${own}.ssm_norm`, `${hub}.norm`], valueDim, 'none');
  const [taps, bias, decay] = [`${own}.ssm_conv1d.weight`, `${own}.ssm_dt.bias`, `${own}.ssm_a`];
  yield {
    name: taps,
    storedName: isHub ? `${hub}.conv1d.weight` : taps,
    shape: isHub ? [numChannels, 1, numTaps] : [numChannels, numTaps],
    isFloat: true,
  };
  yield { name: bias, storedName: isHub ? `${hub}.dt_bias` : bias, shape: [numValueHeads] };
  yield {
    name: decay,
    storedName: isHub ? `${hub}.A_log` : decay,
    shape: [numValueHeads],
    ...(isHub ? { storedAs: 'log-of-negative' } : {}),
  };
}

/** The projections of the input, which Qwen3-Next fuses: the rows of each key head one after another. */
function inputTensors(
  file: ModelFile,
  { hiddenDim: numInputs }: DecoderConfig,
  delta: DeltaConfig,
  layer: number,
): WeightRequest[] {
  const names = tensorNames(file);
  const { numKeyHeads, numValueHeads, keyDim, valueDim, isFusedByHead } = delta;
  const [own, hub] = [`blk.${layer}`, `model.layers.${layer}.linear_attn`];
  const perKey = numValueHeads / numKeyHeads;
  // only older GGUF files fuse the gate with q, k and v
  const isGateSeparate = !isFusedByHead || (!names.isHub && !file.store.tensors.has(`${own}.ssm_in.weight`));
  return [
    ...names.fused({
      fused: [`${own}.ssm_in`, `${hub}.in_proj_qkvz`],
      parts: [
        [`${own}.attn_qkv`, `${hub}.in_proj_qkv`, channelsOf(delta)],
        [`${own}.attn_gate`, `${hub}.in_proj_z`, numValueHeads * valueDim],
      ],
      numInputs,
      bias: 'none',
      isSplit: isGateSeparate,
      storedRowOf: rowsByHead(numKeyHeads, [keyDim, keyDim, perKey * valueDim, perKey * valueDim]),
    }),
    ...names.fused({
      fused: [`${own}.ssm_ba`, `${hub}.in_proj_ba`],
      parts: [
        [`${own}.ssm_beta`, `${hub}.in_proj_b`, numValueHeads],
        [`${own}.ssm_alpha`, `${hub}.in_proj_a`, numValueHeads],
      ],
      numInputs,
      bias: 'none',
      isSplit: !isFusedByHead,
      storedRowOf: rowsByHead(numKeyHeads, [perKey, perKey]),
    }),
  ];
}

/**
 * Where the rows of parts, each with `sizes` rows of every head, are in a matrix that has the rows of all parts head by head.
 */
function rowsByHead(numHeads: number, sizes: readonly number[]): (row: number) => number {
  const perHead = sizes.reduce((sum, size) => sum + size, 0);
  return (row) => {
    let [at, part, begin] = [row, 0, 0];
    for (; at >= numHeads * (sizes[part] as number); part++) {
      at -= numHeads * (sizes[part] as number);
      begin += sizes[part] as number;
    }
    const size = sizes[part] as number;
    return Math.floor(at / size) * perHead + begin + (at % size);
  };
}
