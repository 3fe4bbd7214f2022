/**
 * Qwen 3 with experts (arXiv:2505.09388): the Qwen 3 block, whose FFN is a mixture of experts with normalized weights.
 */
import { describeDecoder, preNormLayer, rmsNorm } from '../blocks/decoder-blocks.js';
import { expertDecoderTensors, expertsFromGguf, expertsFromHub, feedForwardOf } from '../blocks/experts.js';
import { rotaryOf } from '../blocks/rotary.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { Architecture, ModelFile } from '../program/architecture.js';
import { windowOf, type ExpertConfig, type RotaryDecoderConfig } from '../program/config.js';
import { headNormTensors, isDerivedTensor, settingBias } from '../program/tensors.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub } from '../settings/hub-settings.js';
import { withQwenWindow } from './qwen2.js';

export const qwen3moe: Architecture = {
  name: 'qwen3moe',
  models: 'Qwen 3 with experts',
  ggufNames: ['qwen3moe'],
  hubNames: ['qwen3_moe'],
  hubClass: 'Qwen3MoeForCausalLM',
  preTokenizer: 'qwen2',
  async describe(file) {
    const isHub = file.format === 'safetensors';
    const known = ['num_experts', 'num_local_experts'];
    const hub = { architecture: 'qwen3moe', contextLength: 32768, known } as const;
    const config = isHub
      ? withQwenWindow(file, configFromHub(file, hub))
      : await configFromGguf(file, { architecture: 'qwen3moe', norm: 'rms', known: ['expert_count'] });
    // GGUF files do not specify whether weights are normalized: llama.cpp normalizes them, the default of config.json
    // does not
    const experts = isHub
      ? expertsFromHub(file, config, {
          score: 'softmax',
          normalize: false,
          // the name in checkpoints of Transformers 5
          count: file.fields.has('num_experts') ? 'num_experts' : 'num_local_experts',
        })
      : expertsFromGguf(file, config, { score: 'softmax', normalize: true });
    const weights = collectWeights(file.store, requests(file, config, experts), (name) =>
      isDerivedTensor(name, config),
    );
    const rotary = rotaryOf(file.fields, config.rope);
    const layer = preNormLayer({
      norm: rmsNorm,
      attention: (index, step) => ({
        rotary,
        window: windowOf(config, index),
        normalizeHeads: (name, heads) => rmsNorm(step, `${name}_norm`, heads),
      }),
      feedForward: feedForwardOf(experts),
    });
    return describeDecoder({ config: { ...config, experts }, weights, rotaries: [rotary], norm: rmsNorm, layer });
  },
};

function* requests(file: ModelFile, config: RotaryDecoderConfig, experts: ExpertConfig): Generator<WeightRequest> {
  yield* expertDecoderTensors(file, config, experts, { attentionBias: settingBias(file, 'attention_bias') });
  for (let layer = 0; layer < config.numLayers; layer++) yield* headNormTensors(file, config, layer, {});
}
