/**
 * GLM-4.5 (arXiv:2508.06471): pre-norm blocks with split-half rotary pairs over half of each head, biases of q, k and v, RMS
 * norms of the heads of q and k (large model only), and in all but the first layers a mixture of experts with sigmoid
 * scores, a selection bias and shared experts without a gate. Multi-token prediction layers are ignored.
 */
import { describeDecoder, preNormLayer, rmsNorm } from '../blocks/decoder-blocks.js';
import { expertTensors, feedForwardOf } from '../blocks/experts.js';
import { rotaryOf } from '../blocks/rotary.js';
import { sharedExpertNames, sharedExpertsOf } from '../blocks/shared-experts.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { Architecture, ModelFile } from '../program/architecture.js';
import type { ExpertConfig, RotaryDecoderConfig } from '../program/config.js';
import {
  attentionTensors,
  gatedFfnTensors,
  headNormTensors,
  isDerivedTensor,
  isPredictorTensor,
  outerTensors,
  tensorNames,
  type UsualTensors,
} from '../program/tensors.js';
import { configFromGguf, withoutPredictors } from '../settings/gguf-settings.js';
import { configFromHub } from '../settings/hub-settings.js';

const architecture = 'glm4moe';
const routing = { score: 'sigmoid', normalize: true } as const;

export const glm4moe: Architecture = {
  name: architecture,
  models: 'GLM-4.5, GLM-4.5 Air, GLM-4.6, GLM-4.7',
  limits: ['Multi-token prediction layers (`nextn`) are ignored.'],
  ggufNames: [architecture],
  hubNames: ['glm4_moe'],
  hubClass: 'Glm4MoeForCausalLM',
  preTokenizer: 'glm4',
  async describe(file) {
    const config = await configOf(file);
    const experts = sharedExpertsOf(file, config, routing, 1, 'best-two');
    const weights = collectWeights(file.store, requests(file, config, experts), (name) => {
      return isDerivedTensor(name, config) || isPredictorTensor(name, config);
    });
    const rotary = rotaryOf(file.fields, config.rope);
    const layer = preNormLayer({
      norm: rmsNorm,
      attention: (_, step) => ({
        rotary,
        normalizeHeads: (name, heads) =>
          step.hasWeight(`${name}_norm.weight`) ? rmsNorm(step, `${name}_norm`, heads) : heads,
      }),
      feedForward: feedForwardOf(experts),
      ffnNorm: 'post_attention_norm',
    });
    return describeDecoder({ config: { ...config, experts }, weights, rotaries: [rotary], norm: rmsNorm, layer });
  },
};

async function configOf(file: ModelFile): Promise<RotaryDecoderConfig> {
  if (file.format === 'gguf') {
    const known = ['expert_count'];
    return withoutPredictors(file, await configFromGguf(file, { architecture, norm: 'rms', known }));
  }
  return configFromHub(file, {
    architecture,
    epsilon: ['rms_norm_eps', 1e-5],
    numKvHeads: 8,
    contextLength: 131072,
    rope: { share: 0.5 },
    known: ['use_qk_norm'],
  });
}

function* requests(file: ModelFile, config: RotaryDecoderConfig, experts: ExpertConfig): Generator<WeightRequest> {
  const names = tensorNames(file);
  const isBiased = names.isHub && file.fields.boolean('attention_bias', false);
  const usual: UsualTensors = { attentionBias: isBiased ? 'required' : 'optional', outputBias: 'none' };
  const isNormed = names.isHub
    ? file.fields.boolean('use_qk_norm', false)
    : file.store.tensors.has('blk.0.attn_q_norm.weight');
  yield* outerTensors(file, config, usual);
  for (let layer = 0; layer < config.numLayers; layer++) {
    const [own, hub] = [`blk.${layer}`, `model.layers.${layer}`];
    yield* names.norm([`${own}.attn_norm`, `${hub}.input_layernorm`], config.hiddenDim, 'none');
    yield* names.norm([`${own}.post_attention_norm`, `${hub}.post_attention_layernorm`], config.hiddenDim, 'none');
    yield* attentionTensors(file, config, layer, usual);
    if (isNormed) yield* headNormTensors(file, config, layer, usual);
    yield* experts.layers[layer] === false
      ? gatedFfnTensors(file, config, layer, usual)
      : expertTensors(file, config, experts, layer, sharedExpertNames);
  }
}
