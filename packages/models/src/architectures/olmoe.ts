/**
 * OLMoE (arXiv:2409.02060): pre-norm blocks with an RMS norm over the whole q and k vectors, across all heads, before
 * RoPE; the FFN is a mixture of experts with unnormalized softmax weights.
 */
import type { ProgramTensor } from '@winnow/ops';
import { describeDecoder, preNormLayer, rmsNorm } from '../blocks/decoder-blocks.js';
import { expertDecoderTensors, expertsFromGguf, expertsFromHub, feedForwardOf } from '../blocks/experts.js';
import { rotaryOf } from '../blocks/rotary.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { Architecture, ModelFile } from '../program/architecture.js';
import type { ExpertConfig, RotaryDecoderConfig } from '../program/config.js';
import type { DecoderStep } from '../program/decoder-program.js';
import { isDerivedTensor, settingBias, usualNorm } from '../program/tensors.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub } from '../settings/hub-settings.js';

const routing = { score: 'softmax', normalize: false } as const;

export const olmoe: Architecture = {
  name: 'olmoe',
  models: 'OLMoE',
  limits: ['`clip_qkv` is not supported.'],
  ggufNames: ['olmoe'],
  hubNames: ['olmoe'],
  hubClass: 'OlmoeForCausalLM',
  preTokenizer: 'olmo',
  async describe(file) {
    const isHub = file.format === 'safetensors';
    const config = isHub
      ? configFromHub(file, {
          architecture: 'olmoe',
          contextLength: 4096,
          epsilon: ['rms_norm_eps', 1e-5],
          known: ['num_experts'],
        })
      : await configFromGguf(file, { architecture: 'olmoe', norm: 'rms', known: ['expert_count'] });
    const experts = isHub
      ? expertsFromHub(file, config, { ...routing, size: 'intermediate_size', isExpertLayer: () => true })
      : expertsFromGguf(file, config, routing);
    const weights = collectWeights(file.store, requests(file, config, experts), (name) =>
      isDerivedTensor(name, config),
    );
    const rotary = rotaryOf(file.fields, config.rope);
    const layer = preNormLayer({
      norm: rmsNorm,
      attention: (_index, step) => ({
        rotary,
        normalizeHeads: (name, heads) => normalizeAll(step, name, heads),
      }),
      feedForward: feedForwardOf(experts),
    });
    return describeDecoder({ config: { ...config, experts }, weights, rotaries: [rotary], norm: rmsNorm, layer });
  },
};

/** Norm over all heads `[T, N, H]` of a token as one vector. */
function normalizeAll(step: DecoderStep, name: string, heads: ProgramTensor): ProgramTensor {
  const [, numHeads, headDim] = heads.shape as [string, number, number];
  const flat = step.b.reshape(heads, ['T', numHeads * headDim]);
  return step.b.reshape(rmsNorm(step, `${name}_norm`, flat), heads.shape);
}

function* requests(file: ModelFile, config: RotaryDecoderConfig, experts: ExpertConfig): Generator<WeightRequest> {
  yield* expertDecoderTensors(file, config, experts, { attentionBias: settingBias(file, 'attention_bias') });
  const { numHeads, numKvHeads, headDim } = config;
  for (let layer = 0; layer < config.numLayers; layer++) {
    const [own, hub] = [`blk.${layer}`, `model.layers.${layer}.self_attn`];
    yield* usualNorm(file, [`${own}.attn_q_norm`, `${hub}.q_norm`], numHeads * headDim, {});
    yield* usualNorm(file, [`${own}.attn_k_norm`, `${hub}.k_norm`], numKvHeads * headDim, {});
  }
}
