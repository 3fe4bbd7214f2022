/**
 * Granite 3 with experts: the FFN is a mixture of experts with normalized softmax weights. The rest: `granite.ts`.
 * Checkpoints store the gate and up matrices of all experts as one tensor, GGUF files as two.
 */
import { expertDecoderTensors, expertsFromGguf, expertsFromHub, type HubExpertNames } from '../blocks/experts.js';
import type { Architecture } from '../program/architecture.js';
import { settingBias } from '../program/tensors.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub } from '../settings/hub-settings.js';
import { describeGranite } from './granite.js';
import { graniteGgufKeys, graniteHubNames } from './granite-settings.js';

const architecture = 'granitemoe';
const routing = { score: 'softmax', normalize: true } as const;
const hubSizes = { count: 'num_local_experts', size: 'intermediate_size', isExpertLayer: (): boolean => true };
const hubNames: HubExpertNames = {
  module: 'block_sparse_moe',
  router: 'router.layer',
  stacked: ['input_linear.weight', 'output_linear.weight'],
};

export const granitemoe: Architecture = {
  name: architecture,
  models: 'Granite 3.0 and 3.1 with experts (1B-A400M, 3B-A800M)',
  limits: ['Shared experts (`granitemoeshared`) are not supported.'],
  ggufNames: ['granitemoe'],
  hubNames: ['granitemoe'],
  hubClass: 'GraniteMoeForCausalLM',
  preTokenizer: 'refact',
  async describe(file) {
    const isHub = file.format === 'safetensors';
    const dense = isHub
      ? configFromHub(file, { architecture, known: [...graniteHubNames, 'num_local_experts'] })
      : await configFromGguf(file, {
          architecture,
          norm: 'rms',
          layout: 'neighbors',
          known: [...graniteGgufKeys, 'expert_count'],
        });
    const experts = isHub
      ? expertsFromHub(file, dense, { ...routing, ...hubSizes })
      : expertsFromGguf(file, dense, routing);
    const config = { ...dense, experts };
    const biases = { attentionBias: settingBias(file, 'attention_bias') };
    return describeGranite(file, config, expertDecoderTensors(file, config, experts, biases, hubNames));
  },
};
