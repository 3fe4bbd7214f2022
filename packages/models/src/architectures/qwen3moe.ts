/**
 * Qwen 3 with experts (arXiv:2505.09388): the Qwen 3 block with a mixture of experts as FFN, whose routing weights are normalized.
 */
import { describeDecoder, rmsNorm } from '../blocks/decoder-blocks.js';
import {
  expertDecoderTensors,
  expertsFromGguf,
  expertsFromHub,
  feedForwardOf,
  type HubExpertNames,
} from '../blocks/experts.js';
import { rotaryOf } from '../blocks/rotary.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { Architecture, ModelDescription, ModelFile } from '../program/architecture.js';
import type { ExpertConfig, RotaryDecoderConfig } from '../program/config.js';
import { headNormTensors, isDerivedTensor, settingBias } from '../program/tensors.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub } from '../settings/hub-settings.js';
import { withQwenWindow } from './qwen2.js';
import { qwen3Layer, withImages, type Qwen3Images } from './qwen3.js';

export const qwen3moe: Architecture = {
  name: 'qwen3moe',
  models: 'Qwen 3 with experts',
  ggufNames: ['qwen3moe'],
  hubNames: ['qwen3_moe'],
  hubClass: 'Qwen3MoeForCausalLM',
  preTokenizer: 'qwen2',
  describe: (file) => describeQwen3Moe(file),
};

/** The expert tensors of Qwen3-VL, whose matrices are stored transposed. */
const visionLayout: HubExpertNames = { isTransposed: true };

export async function describeQwen3Moe(file: ModelFile, images?: Qwen3Images): Promise<ModelDescription> {
  const isHub = file.format === 'safetensors';
  const common =
    images === undefined ? { architecture: 'qwen3moe' } : { architecture: 'qwen3vlmoe', rope: images.rope };
  const known = ['num_experts', 'num_local_experts'];
  const text = isHub
    ? withQwenWindow(file, configFromHub(file, { ...common, contextLength: 32768, known }))
    : await configFromGguf(file, { ...common, norm: 'rms', known: ['expert_count'] });
  const experts = expertsOf(file, text);
  // Qwen3-VL always normalizes weights
  const routed = images === undefined ? experts : { ...experts, normalize: true };
  const config = withImages({ ...text, experts: routed }, images);
  const requests = expertRequests(file, config, images === undefined ? {} : visionLayout);
  const weights = collectWeights(file.store, requests, (name) => isDerivedTensor(name, config));
  const rotary = rotaryOf(file.fields, config.rope);
  const layer = qwen3Layer(config, rotary, feedForwardOf(config.experts));
  return describeDecoder({ config, weights, rotaries: [rotary], norm: rmsNorm, layer });
}

function expertsOf(file: ModelFile, config: RotaryDecoderConfig): ExpertConfig {
  // GGUF files do not specify whether weights are normalized: llama.cpp normalizes them, although the default of
  // config.json is not to
  if (file.format === 'gguf') return expertsFromGguf(file, config, { score: 'softmax', normalize: true });
  return expertsFromHub(file, config, {
    score: 'softmax',
    normalize: false,
    // the name in checkpoints of Transformers 5
    count: file.fields.has('num_experts') ? 'num_experts' : 'num_local_experts',
  });
}

function* expertRequests(
  file: ModelFile,
  config: RotaryDecoderConfig & { readonly experts: ExpertConfig },
  layout: HubExpertNames,
): Generator<WeightRequest> {
  const usual = { attentionBias: settingBias(file, 'attention_bias') };
  yield* expertDecoderTensors(file, config, config.experts, usual, layout);
  for (let layer = 0; layer < config.numLayers; layer++) yield* headNormTensors(file, config, layer, {});
}
