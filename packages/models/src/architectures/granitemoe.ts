/**
 * Granite 3 with experts: `granite.ts` with a mixture of experts as FFN, whose softmax weights are normalized;
 * `granitemoeshared` adds a shared expert without a gate. Checkpoints fuse the gate and up matrices of experts, GGUF files do
 * not. GGUF files use one architecture name for both.
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

/** Names of the expert tensors in Granite checkpoints. */
export const graniteExpertNames: HubExpertNames = {
  module: 'block_sparse_moe',
  router: 'router.layer',
  stacked: ['input_linear.weight', 'output_linear.weight'],
  shared: 'shared_mlp',
  sharedMatrices: ['input_linear', 'output_linear'],
};

/** The experts of a Granite model, with a shared expert if the file specifies its size. */
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
