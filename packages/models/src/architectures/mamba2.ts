/** Mamba-2 (arXiv:2405.21060): state-space layers alone, `x += ssm(rms(x))`. */
import { add, describeDecoder, rmsNorm } from '../blocks/decoder-blocks.js';
import {
  checkedStateSpace,
  refuseStateSettings,
  stateSpaceConstants,
  stateSpaceFromGguf,
  stateSpaceMixer,
  stateSpaceTensors,
  type StateSpaceConfig,
} from '../blocks/state-space.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { Architecture, ModelFile } from '../program/architecture.js';
import type { DecoderConfig } from '../program/config.js';
import { isDerivedTensor } from '../program/tensors.js';
import { attentionFreeFromGguf, attentionFreeFromHub, attentionFreeTensors } from '../settings/attention-free.js';
import { refuseSettings } from '../settings/config-checks.js';

const architecture = 'mamba2';

export const mamba2: Architecture = {
  name: architecture,
  models: 'Mamba-2',
  limits: [
    'Outputs are normalized per group of heads, as in llama.cpp; transformers normalizes all groups together.',
    'Options for attention and for KV cache tiers are rejected.',
  ],
  ggufNames: [architecture],
  hubNames: [architecture],
  hubClass: 'Mamba2ForCausalLM',
  async describe(file) {
    const config =
      file.format === 'gguf'
        ? attentionFreeFromGguf(file, architecture)
        : attentionFreeFromHub(file, architecture, false);
    const states = statesOf(file, config);
    return describeDecoder({
      config,
      weights: collectWeights(file.store, requests(file, config, states), (name) => isDerivedTensor(name, config)),
      constants: stateSpaceConstants(states),
      norm: rmsNorm,
      layer: (step, layer, x) =>
        add(step, x, stateSpaceMixer(step, layer, rmsNorm(step, `blk.${layer}.attn_norm`, x), states)),
    });
  },
};

function* requests(file: ModelFile, config: DecoderConfig, states: StateSpaceConfig): Generator<WeightRequest> {
  yield* attentionFreeTensors(file, config);
  for (let layer = 0; layer < config.numLayers; layer++) {
    yield* stateSpaceTensors(file, config.hiddenDim, states, layer, `backbone.layers.${layer}.mixer`);
  }
}

function statesOf({ format, fields }: ModelFile, { hiddenDim }: DecoderConfig): StateSpaceConfig {
  if (format === 'gguf') return stateSpaceFromGguf(fields, architecture);
  refuseSettings(fields, { use_bias: [false], rms_norm: [true] });
  refuseStateSettings(fields);
  const sizes = {
    numHeads: fields.count('num_heads', 128),
    headDim: fields.count('head_dim', 64),
    numGroups: fields.count('n_groups', 8),
    stateDim: fields.count('state_size', 128),
    numTaps: fields.count('conv_kernel', 4),
  };
  return checkedStateSpace(fields, sizes, Math.floor(fields.number('expand', 2) * hiddenDim));
}
