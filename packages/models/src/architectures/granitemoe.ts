/**
 * Granite 3 with experts: the FFN is a mixture of experts with normalized softmax weights, in `granitemoeshared` with a shared
 * expert that has no gate. The rest: `granite.ts`. Checkpoints store the gate and up matrices of experts as one tensor, GGUF
 * files as two; in these both have the same architecture.
 */
import { expertDecoderTensors, expertsFromGguf, expertsFromHub, type HubExpertNames } from '../blocks/experts.js';
import type { Architecture, ModelFile } from '../program/architecture.js';
import type { DecoderConfig, ExpertConfig } from '../program/config.js';
import { settingBias } from '../program/tensors.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub } from '../settings/hub-settings.js';
import { describeGranite } from './granite.js';
import { graniteGgufKeys, graniteHubNames } from './granite-settings.js';

const architecture = 'granitemoe';
const routing = { score: 'softmax', normalize: true } as const;
const shared = 'sized';
const hubSizes = {
  count: 'num_local_experts',
  size: 'intermediate_size',
  shared,
  isExpertLayer: (): boolean => true,
} as const;

/** The tensors of experts in checkpoints of Granite. */
export const graniteExpertNames: HubExpertNames = {
  module: 'block_sparse_moe',
  router: 'router.layer',
  stacked: ['input_linear.weight', 'output_linear.weight'],
  shared: 'shared_mlp',
  sharedMatrices: ['input_linear', 'output_linear'],
};

/** The experts of a Granite model: with a shared one if the file has its size. */
export function graniteExperts(file: ModelFile, config: DecoderConfig): ExpertConfig {
  return file.format === 'safetensors'
    ? expertsFromHub(file, config, { ...routing, ...hubSizes })
    : expertsFromGguf(file, config, routing, shared);
}

export const granitemoe: Architecture = {
  name: architecture,
  models: 'Granite 3.0 and 3.1 with experts (1B-A400M, 3B-A800M), also with shared experts',
  ggufNames: ['granitemoe'],
  hubNames: ['granitemoe', 'granitemoeshared'],
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
    const experts = graniteExperts(file, dense);
    const config = { ...dense, experts };
    const biases = { attentionBias: settingBias(file, 'attention_bias') };
    return describeGranite(file, config, expertDecoderTensors(file, config, experts, biases, graniteExpertNames));
  },
};
