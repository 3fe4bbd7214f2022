/**
 * Mixtral (arXiv:2401.04088): the Llama block with a mixture of experts as FFN, whose routing weights are normalized. GGUF
 * files have the architecture `llama` with an expert count, and interleaved rotary pairs.
 */
import { describeDecoder, preNormLayer, rmsNorm } from '../blocks/decoder-blocks.js';
import {
  expertDecoderTensors,
  expertsFromGguf,
  expertsFromHub,
  feedForwardOf,
  type HubExpertNames,
} from '../blocks/experts.js';
import { rotaryOf } from '../blocks/rotary.js';
import { collectWeights } from '../file/weights.js';
import type { DecoderArchitecture, ModelFile } from '../program/architecture.js';
import { windowOf, type ExpertConfig, type RotaryDecoderConfig } from '../program/config.js';
import { isDerivedTensor } from '../program/tensors.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub } from '../settings/hub-settings.js';

export const mixtral: DecoderArchitecture = {
  name: 'mixtral',
  models: 'Mixtral 8x7B and 8x22B',
  limits: ['GGUF files name the architecture `llama` and have `llama.expert_count`.'],
  ggufNames: [],
  hubNames: ['mixtral'],
  hubClass: 'MixtralForCausalLM',
  async describe(file) {
    const { config: decoder, experts } = await settingsOf(file);
    const config = { ...decoder, experts, neighborsInGguf: true } as const;
    const tensors = expertDecoderTensors(file, config, experts, {}, hubNames(file));
    const weights = collectWeights(file.store, tensors, (name) => isDerivedTensor(name, config));
    const rotary = rotaryOf(file.fields, config.rope);
    const layer = preNormLayer({
      norm: rmsNorm,
      attention: (index) => ({ rotary, window: windowOf(config, index) }),
      feedForward: feedForwardOf(experts),
    });
    return describeDecoder({ config, weights, rotaries: [rotary], norm: rmsNorm, layer });
  },
};

/** Whether a GGUF file of architecture `llama` is a Mixtral model. */
export function hasExperts({ format, fields }: ModelFile): boolean {
  return format === 'gguf' && fields.integer('llama.expert_count', 0) > 0;
}

async function settingsOf(file: ModelFile): Promise<{ config: RotaryDecoderConfig; experts: ExpertConfig }> {
  const routing = { score: 'softmax', normalize: true } as const;
  const { fields } = file;
  if (file.format === 'gguf') {
    const decoder = { architecture: 'llama', norm: 'rms', layout: 'neighbors', known: ['expert_count'] } as const;
    const config = await configFromGguf(file, decoder);
    const slidingWindow = fields.integer('llama.attention.sliding_window', 0);
    return { config: { ...config, slidingWindow }, experts: expertsFromGguf(file, config, routing) };
  }
  const config = configFromHub(file, {
    architecture: 'mixtral',
    contextLength: 131072,
    numKvHeads: 8,
    epsilon: ['rms_norm_eps', 1e-5],
    rope: { base: 1e6 },
    known: ['num_local_experts'],
  });
  const sizes = { count: 'num_local_experts', size: 'intermediate_size', isExpertLayer: (): boolean => true };
  const slidingWindow = fields.integer('sliding_window', 0);
  return { config: { ...config, slidingWindow }, experts: expertsFromHub(file, config, { ...routing, ...sizes }) };
}

/** Names in older and newer checkpoints. */
function hubNames({ store }: ModelFile): HubExpertNames {
  const isOld = store.tensors.has('model.layers.0.block_sparse_moe.gate.weight');
  return isOld ? { module: 'block_sparse_moe', matrices: ['w1', 'w3', 'w2'] } : {};
}
