/**
 * Qwen 1.5 and 2 with experts (arXiv:2407.10671): the Qwen 2 block, whose FFN is a mixture of experts with unnormalized
 * softmax weights plus a gated shared expert.
 */
import { describeDecoder, preNormLayer, rmsNorm } from '../blocks/decoder-blocks.js';
import { expertDecoderTensors, expertsFromGguf, expertsFromHub, feedForwardOf } from '../blocks/experts.js';
import { rotaryOf } from '../blocks/rotary.js';
import { collectWeights } from '../file/weights.js';
import type { Architecture } from '../program/architecture.js';
import { windowOf } from '../program/config.js';
import { isDerivedTensor, type UsualTensors } from '../program/tensors.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub } from '../settings/hub-settings.js';
import { withQwenWindow } from './qwen2.js';

const routing = { score: 'softmax', normalize: false } as const;

export const qwen2moe: Architecture = {
  name: 'qwen2moe',
  models: 'Qwen 1.5 and 2 with experts',
  ggufNames: ['qwen2moe'],
  hubNames: ['qwen2_moe'],
  hubClass: 'Qwen2MoeForCausalLM',
  preTokenizer: 'qwen2',
  async describe(file) {
    const isHub = file.format === 'safetensors';
    const hub = { architecture: 'qwen2moe', contextLength: 32768, known: ['num_experts'] } as const;
    const config = isHub
      ? withQwenWindow(file, configFromHub(file, hub))
      : await configFromGguf(file, { architecture: 'qwen2moe', norm: 'rms', known: ['expert_count'] });
    const experts = isHub
      ? expertsFromHub(file, config, { ...routing, shared: 'gated' })
      : expertsFromGguf(file, config, routing, 'gated');
    const hasBias = isHub && file.fields.boolean('qkv_bias', true);
    const usual: UsualTensors = { attentionBias: hasBias ? 'required' : 'optional', outputBias: 'optional' };
    const tensors = expertDecoderTensors(file, config, experts, usual);
    const weights = collectWeights(file.store, tensors, (name) => isDerivedTensor(name, config));
    const rotary = rotaryOf(file.fields, config.rope);
    const layer = preNormLayer({
      norm: rmsNorm,
      attention: (index) => ({ rotary, window: windowOf(config, index) }),
      feedForward: feedForwardOf(experts),
    });
    return describeDecoder({ config: { ...config, experts }, weights, rotaries: [rotary], norm: rmsNorm, layer });
  },
};
