/**
 * gpt-oss (arXiv:2508.10925): pre-norm blocks with biases everywhere. Every other layer, starting with the first, has a sliding
 * window; the attention softmax has a learned sink per head; the ramp of YaRN is not rounded. The FFN is a mixture of experts
 * with biases and a clamped GLU, `silu(1.702 g) / 1.702 * (u + 1)`, where neither g nor |u| exceeds the limit.
 * Checkpoints store the matrices of experts as `[inputs, outputs]` with alternating columns of gate and up, or as MXFP4.
 */
import { describeDecoder, preNormLayer, rmsNorm } from '../blocks/decoder-blocks.js';
import {
  expertsFromGguf,
  expertsFromHub,
  expertTensors,
  feedForwardOf,
  type HubExpertNames,
} from '../blocks/experts.js';
import { rotaryOf } from '../blocks/rotary.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { DecoderArchitecture, ModelFile } from '../program/architecture.js';
import { windowOf, type ExpertConfig, type RotaryDecoderConfig } from '../program/config.js';
import { attentionTensors, isDerivedTensor, outerTensors, tensorNames, type Bias } from '../program/tensors.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub, windowedLayersOf } from '../settings/hub-settings.js';
import { windowedByPeriod, withGgufWindow } from './gemma-settings.js';

const architecture = 'gpt-oss';
const routing = { score: 'softmax', normalize: true } as const;
/** Constants of the GLU; files specify at most the limit. */
const [alpha, usualLimit] = [1.702, 7];
const period = 2;
const hubNames: HubExpertNames = { router: 'router', isInterleaved: true, hasBias: true };

interface Settings {
  readonly config: RotaryDecoderConfig;
  readonly experts: ExpertConfig;
}

export const gptOss: DecoderArchitecture = {
  name: architecture,
  models: 'gpt-oss 20B and 120B',
  limits: [
    'Attention policies: dense, streaming and page-topk, without delta. Eviction: oldest tokens first.',
    'GGUF files have no key for the rounding of YaRN: it is off, as in config.json; llama.cpp rounds.',
    'MXFP4 experts of Hugging Face folders keep their format.',
  ],
  ggufNames: [architecture],
  hubNames: ['gpt_oss'],
  hubClass: 'GptOssForCausalLM',
  preTokenizer: 'gpt-4o',
  async describe(file) {
    const { config: dense, experts } = file.format === 'gguf' ? await ofGguf(file) : ofHub(file);
    const config = { ...dense, experts };
    const weights = collectWeights(file.store, requests(file, config, experts), (name) =>
      isDerivedTensor(name, config),
    );
    const rotary = rotaryOf(file.fields, config.rope);
    const layer = preNormLayer({
      norm: rmsNorm,
      attention: (index, step) => ({
        rotary,
        window: windowOf(config, index),
        sinkLogits: step.weight(`blk.${index}.attn_sinks.weight`),
      }),
      feedForward: feedForwardOf(experts),
    });
    return describeDecoder({ config, weights, rotaries: [rotary], norm: rmsNorm, layer });
  },
};

async function ofGguf(file: ModelFile): Promise<Settings> {
  const dense = await configFromGguf(file, { architecture, norm: 'rms', known: ['expert_count'] });
  const { rope } = dense;
  const scaling = rope.scaling?.type === 'yarn' ? { ...rope.scaling, truncate: false } : rope.scaling;
  const config = { ...dense, rope: { ...rope, ...(scaling === undefined ? {} : { scaling }) } };
  const experts = { ...expertsFromGguf(file, config, routing), clamp: { limit: usualLimit, alpha } };
  return { config: withGgufWindow(file.fields, config, { window: 128, period }), experts };
}

function ofHub(file: ModelFile): Settings {
  const { fields } = file;
  if (!fields.has('rope_parameters') && !fields.has('rope_scaling')) {
    throw fields.refusal('rope_scaling', 'YaRN settings', undefined);
  }
  const config = configFromHub(file, {
    architecture,
    contextLength: 131_072,
    numKvHeads: 8,
    headDim: 64,
    epsilon: ['rms_norm_eps', 1e-5],
    rope: { base: 150_000 },
    known: ['num_local_experts', 'num_experts'],
    quantization: 'mxfp4',
  });
  const experts = expertsFromHub(file, config, {
    ...routing,
    count: fields.has('num_local_experts') ? 'num_local_experts' : 'num_experts',
    size: 'intermediate_size',
    isExpertLayer: () => true,
  });
  const limit = fields.number('swiglu_limit', usualLimit);
  if (!(limit > 0)) throw fields.refusal('swiglu_limit', 'a positive number', limit);
  const slidingWindow = fields.isNull('sliding_window') ? 0 : fields.integer('sliding_window', 128);
  const windowedLayers = windowedLayersOf(fields, config.numLayers) ?? windowedByPeriod(config, period);
  return { config: { ...config, slidingWindow, windowedLayers }, experts: { ...experts, clamp: { limit, alpha } } };
}

function* requests(file: ModelFile, config: RotaryDecoderConfig, experts: ExpertConfig): Generator<WeightRequest> {
  const names = tensorNames(file);
  const { hiddenDim, numHeads } = config;
  const hasBias = names.isHub && file.fields.boolean('attention_bias', true);
  const attentionBias: Bias = hasBias ? 'required' : 'optional';
  yield* outerTensors(file, config, {});
  for (let layer = 0; layer < config.numLayers; layer++) {
    const [own, hub] = [`blk.${layer}`, `model.layers.${layer}`];
    yield* names.norm([`${own}.attn_norm`, `${hub}.input_layernorm`], hiddenDim, 'none');
    const ffnNorm = names.isHub ? `${hub}.post_attention_layernorm` : `${own}.post_attention_norm`;
    yield { name: `${own}.ffn_norm.weight`, storedName: `${ffnNorm}.weight`, shape: [hiddenDim] };
    yield* attentionTensors(file, config, layer, { attentionBias });
    const sinks = `${own}.attn_sinks.weight`;
    yield { name: sinks, storedName: names.isHub ? `${hub}.self_attn.sinks` : sinks, shape: [numHeads] };
    yield* expertTensors(file, config, experts, layer, hubNames);
  }
}
