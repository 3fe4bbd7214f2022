/**
 * Falcon-H1 (arXiv:2507.22448): in every layer, grouped-query attention and a Mamba-2 layer read the same normalized inputs:
 * `y = rms(x); x += f_s ssm(y) + f_o attn(f_a y); x += f_d ffn(rms(x))`, with µP factors that config.json declares and GGUF
 * files fold into the weights. The factor of the FFN's gate is applied to its inputs and divided out of its outputs.
 */
import { add, attentionBlock, describeDecoder, gatedFeedForward, rmsNorm, scaled } from '../blocks/decoder-blocks.js';
import { rotaryOf } from '../blocks/rotary.js';
import {
  checkedStateSpace,
  refuseStateSettings,
  stateSpaceConstants,
  stateSpaceFromGguf,
  stateSpaceMixer,
  stateSpaceTensors,
  type StateSpaceConfig,
} from '../blocks/state-space.js';
import type { Fields } from '../file/fields.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { Architecture, ModelFile } from '../program/architecture.js';
import type { RotaryDecoderConfig } from '../program/config.js';
import { embedTokens } from '../program/decoder-program.js';
import { attentionTensors, isDerivedTensor, settingBias, tensorNames } from '../program/tensors.js';
import { refuseSettings } from '../settings/config-checks.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub } from '../settings/hub-settings.js';
import { falconH1FactorNames, falconH1Factors, type FalconH1Factors } from './falcon-h1-factors.js';

const architecture = 'falcon-h1';

interface Settings {
  readonly config: RotaryDecoderConfig;
  readonly states: StateSpaceConfig;
  readonly factors: FalconH1Factors;
}

export const falconH1: Architecture = {
  name: architecture,
  models: 'Falcon-H1',
  limits: [
    'The optional norm of state-space layers comes after the gate, as in GGUF files and published models.',
    'A LoRA adapter must have the format of the model, because GGUF files fold the factors into the weights.',
  ],
  ggufNames: [architecture],
  hubNames: ['falcon_h1'],
  hubClass: 'FalconH1ForCausalLM',
  preTokenizer: 'falcon-h1',
  async describe(file) {
    const { config, states, factors } = file.format === 'gguf' ? await ofGguf(file) : ofHub(file);
    const weights = collectWeights(file.store, requests(file, config, states), (name) => isDerivedTensor(name, config));
    const rotary = rotaryOf(file.fields, config.rope);
    const scale = factors.key / Math.sqrt(config.headDim);
    return describeDecoder({
      config,
      weights,
      rotaries: [rotary],
      constants: stateSpaceConstants(states),
      embed: (step) => embedTokens(step, factors.embedding),
      norm: rmsNorm,
      layer(step, layer, input) {
        const normed = rmsNorm(step, `blk.${layer}.attn_norm`, input);
        const mixed = stateSpaceMixer(step, layer, normed, states);
        const attended = attentionBlock(step, layer, scaled(step, normed, factors.attentionIn), { rotary, scale });
        const sum = add(step, scaled(step, mixed, factors.statesOut), scaled(step, attended, factors.attentionOut));
        const x = add(step, input, sum);
        const ffnInput = scaled(step, rmsNorm(step, `blk.${layer}.ffn_norm`, x), factors.gate);
        return add(step, x, scaled(step, gatedFeedForward(step, layer, ffnInput), factors.down / factors.gate));
      },
      logitScale: factors.logits,
    });
  },
};

async function ofGguf(file: ModelFile): Promise<Settings> {
  const { fields, store } = file;
  return {
    config: await configFromGguf(file, { architecture, norm: 'rms' }),
    states: stateSpaceFromGguf(fields, architecture, store.tensors.has('blk.0.ssm_norm.weight')),
    factors: falconH1Factors(fields.without(() => true)),
  };
}

function ofHub(file: ModelFile): Settings {
  const { fields } = file;
  const hasNorm = fields.boolean('mamba_rms_norm', false);
  // the factor of the gate cannot be divided out of a bias
  refuseSettings(fields, { mamba_proj_bias: [false], projectors_bias: [false], mlp_bias: [false] });
  if (hasNorm && fields.boolean('mamba_norm_before_gate', true)) {
    throw fields.refusal('mamba_norm_before_gate', 'false with mamba_rms_norm', true);
  }
  refuseStateSettings(fields);
  const config = configFromHub(file, {
    architecture,
    epsilon: ['rms_norm_eps', 1e-5],
    contextLength: 8192,
    numHeads: 32,
    numKvHeads: 8,
    known: falconH1FactorNames,
  });
  const factors = falconH1Factors(fields);
  return { config, states: hubStates(fields, config.hiddenDim, hasNorm, factors), factors };
}

function hubStates(fields: Fields, hiddenDim: number, hasNorm: boolean, factors: FalconH1Factors): StateSpaceConfig {
  const innerDim = fields.isNull('mamba_d_ssm')
    ? Math.floor(fields.number('mamba_expand', 2) * hiddenDim)
    : fields.count('mamba_d_ssm', 1024);
  const numHeads = fields.count('mamba_n_heads', 128);
  const isAuto = fields.raw('mamba_d_head') === undefined || fields.raw('mamba_d_head') === 'auto';
  const hasFactors = Object.values(factors.states).some((factor) => factor !== 1);
  const sizes = {
    numHeads,
    headDim: isAuto ? Math.floor(innerDim / numHeads) : fields.count('mamba_d_head'),
    numGroups: fields.count('mamba_n_groups', 1),
    stateDim: fields.count('mamba_d_state', 256),
    numTaps: fields.count('mamba_d_conv', 4),
    hasNorm,
    ...(hasFactors ? { factors: factors.states } : {}),
  };
  return checkedStateSpace(fields, sizes, innerDim);
}

function* requests(file: ModelFile, config: RotaryDecoderConfig, states: StateSpaceConfig): Generator<WeightRequest> {
  const { vocabSize, hiddenDim, ffnDim, isTied } = config;
  const names = tensorNames(file);
  const attentionBias = settingBias(file, 'attention_bias');
  yield* names.matrix(['token_embd', 'model.embed_tokens'], [vocabSize, hiddenDim], 'none');
  yield* names.norm(['output_norm', 'model.final_layernorm'], hiddenDim, 'none');
  if (!isTied) yield* names.matrix(['output', 'lm_head'], [vocabSize, hiddenDim], 'none');
  for (let layer = 0; layer < config.numLayers; layer++) {
    const [own, hub] = [`blk.${layer}`, `model.layers.${layer}`];
    yield* names.norm([`${own}.attn_norm`, `${hub}.input_layernorm`], hiddenDim, 'none');
    // GGUF files store this norm without a suffix
    const storedNorm = names.isHub ? `${hub}.pre_ff_layernorm.weight` : `${own}.ffn_norm`;
    yield { name: `${own}.ffn_norm.weight`, storedName: storedNorm, shape: [hiddenDim] };
    yield* attentionTensors(file, config, layer, { attentionBias });
    yield* stateSpaceTensors(file, hiddenDim, states, layer, `${hub}.mamba`);
    const ffn = `${hub}.feed_forward`;
    yield* names.matrix([`${own}.ffn_gate`, `${ffn}.gate_proj`], [ffnDim, hiddenDim], 'none');
    yield* names.matrix([`${own}.ffn_up`, `${ffn}.up_proj`], [ffnDim, hiddenDim], 'none');
    yield* names.matrix([`${own}.ffn_down`, `${ffn}.down_proj`], [hiddenDim, ffnDim], 'none');
  }
}
