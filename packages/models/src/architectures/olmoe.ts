/**
 * OLMoE (arXiv:2409.02060): pre-norm blocks with an RMS norm over the whole q and k vectors, across all heads, before
 * RoPE; the FFN is a mixture of experts with unnormalized softmax weights.
 */
import { describeDecoder, preNormLayer, rmsNorm } from '../blocks/decoder-blocks.js';
import { expertDecoderTensors, expertsFromGguf, expertsFromHub, feedForwardOf } from '../blocks/experts.js';
import { rotaryOf } from '../blocks/rotary.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { Architecture, ModelFile } from '../program/architecture.js';
import type { ExpertConfig, RotaryDecoderConfig } from '../program/config.js';
import { isDerivedTensor, settingBias } from '../program/tensors.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub } from '../settings/hub-settings.js';
import { allHeadsNormTensors, normAllHeads } from './olmo-blocks.js';

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
        normalizeHeads: (name, heads) => normAllHeads(step, name, heads),
      }),
      feedForward: feedForwardOf(experts),
    });
    return describeDecoder({ config: { ...config, experts }, weights, rotaries: [rotary], norm: rmsNorm, layer });
  },
};

function* requests(file: ModelFile, config: RotaryDecoderConfig, experts: ExpertConfig): Generator<WeightRequest> {
  yield* expertDecoderTensors(file, config, experts, { attentionBias: settingBias(file, 'attention_bias') });
  for (let layer = 0; layer < config.numLayers; layer++) yield* allHeadsNormTensors(file, config, layer);
}
