/**
 * Nomic BERT (arXiv:2402.01613): the post-norm blocks of BERT with RoPE instead of learned positions, SwiGLU, and
 * fused query, key and value.
 */
import { gatedFeedForward } from '../blocks/decoder-blocks.js';
import { describeEncoder, embedWithNorm, postNormLayer } from '../blocks/encoder-blocks.js';
import { rotaryOf } from '../blocks/rotary.js';
import type { Fields } from '../file/fields.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { EmbedderDescription, EncoderArchitecture, ModelFile } from '../program/architecture.js';
import type { RopeConfig } from '../program/config.js';
import { isDerivedTensor, tensorNames, type Bias } from '../program/tensors.js';
import { refuseSettings } from '../settings/config-checks.js';
import {
  biasedNorm,
  encoderAttention,
  encoderFromGguf,
  encoderFromHub,
  encoderPart,
  rowsOf,
  type RotaryEncoderConfig,
} from '../settings/encoder-settings.js';
import { ggufRotaryDim, readFreqFactors, ropeFromGguf, ropeFromHub } from '../settings/rope-settings.js';

/** Maps `activation_function` to the activation of the gate. */
const gates: Readonly<Record<string, string>> = { swiglu: 'silu', geglu: 'gelu' };

export const nomicBert: EncoderArchitecture = {
  name: 'nomic-bert',
  models: 'Nomic Embed Text 1 and 1.5, Arctic Embed m-long',
  limits: [
    'Only checkpoints with the original names (`n_embd`, `encoder.layers.0.attn.Wqkv`); experts are not supported.',
    '`rotary_scaling_factor` affects only positions beyond `max_trained_positions`, where the context ends.',
  ],
  isEncoder: true,
  ggufNames: ['nomic-bert'],
  hubNames: ['nomic_bert'],
  hubClass: 'NomicBertModel',
  async describe(checkpoint) {
    const file = encoderPart(checkpoint, { outer: ['bert.', 'model.'], heads: /^(pooler|cls)\./ });
    const config = file.format === 'gguf' ? await ofGguf(file) : ofHub(file);
    return describeNomicBert(file, config, requests(file, config));
  },
};

/** Post-norm blocks with rotary positions and gated FFNs. */
export function describeNomicBert(
  file: ModelFile,
  config: RotaryEncoderConfig,
  tensors: Iterable<WeightRequest>,
): EmbedderDescription {
  const rotary = rotaryOf(file.fields, config.rope);
  return describeEncoder({
    config,
    weights: collectWeights(file.store, tensors, (name) => isDerivedTensor(name, config)),
    rotaries: [rotary],
    embed: embedWithNorm,
    layer: postNormLayer({ rotary }, gatedFeedForward),
  });
}

async function ofGguf(file: ModelFile): Promise<RotaryEncoderConfig> {
  const { fields, store } = file;
  const architecture = 'nomic-bert';
  const config = encoderFromGguf(file, architecture, { activation: 'silu' });
  const factors = await readFreqFactors(store, ggufRotaryDim(fields, architecture, config.headDim) / 2);
  return { ...config, rope: ropeFromGguf(fields, architecture, config.headDim, 'halves', factors) };
}

/** Settings that change the computation but not the tensors: other values are rejected. */
const neutralValues: Readonly<Record<string, readonly unknown[]>> = {
  causal: [false],
  parallel_block: [false],
  prenorm: [false],
  rotary_emb_interleaved: [false],
  rotary_emb_scale_base: [],
  scale_attn_by_inverse_layer_idx: [false],
  scale_attn_weights: [true],
  use_rms_norm: [false],
};

function ofHub(file: ModelFile): RotaryEncoderConfig {
  const { fields } = file;
  refuseSettings(fields, neutralValues);
  const gate = fields.string('activation_function', 'swiglu');
  if (!Object.hasOwn(gates, gate)) {
    throw fields.refusal('activation_function', Object.keys(gates).join(' or '), gate);
  }
  const config = encoderFromHub(file, {
    architecture: 'nomic-bert',
    epsilon: ['layer_norm_epsilon', 1e-12],
    activation: ['gate_activation', gates[gate] as string],
    embedding: 'embeddings.word_embeddings.weight',
    names: {
      hidden_size: 'n_embd',
      num_attention_heads: 'n_head',
      num_hidden_layers: 'n_layer',
      max_position_embeddings: 'n_positions',
      intermediate_size: 'n_inner',
    },
    ffnDim: (hiddenDim) => 4 * hiddenDim,
  });
  // beyond the trained positions the RoPE base would change with the length
  const isScaled = fields.has('rotary_scaling_factor');
  const contextLength = isScaled ? fields.count('max_trained_positions', 2048) : config.contextLength;
  return { ...config, contextLength, rope: hubRope(fields, config.headDim) };
}

function hubRope(fields: Fields, headDim: number): RopeConfig {
  const base = fields.number('rotary_emb_base');
  return ropeFromHub(fields, headDim, { base, share: fields.number('rotary_emb_fraction') });
}

function* requests(file: ModelFile, config: RotaryEncoderConfig): Generator<WeightRequest> {
  const { vocabSize, hiddenDim, ffnDim, numLayers } = config;
  const names = tensorNames(file);
  const hubTypes = 'embeddings.token_type_embeddings';
  const numTypes = rowsOf(file.store, `${names.isHub ? hubTypes : 'token_types'}.weight`);
  const bias = (setting: string): Bias =>
    names.isHub && file.fields.boolean(setting, false) ? 'required' : 'optional';
  yield* names.matrix(['token_embd', 'embeddings.word_embeddings'], [vocabSize, hiddenDim], 'none');
  if (numTypes > 0) yield* names.matrix(['token_types', hubTypes], [numTypes, hiddenDim], 'none');
  yield* biasedNorm(names, ['token_embd_norm', 'emb_ln'], config);
  for (let layer = 0; layer < numLayers; layer++) {
    const [own, hub] = [`blk.${layer}`, `encoder.layers.${layer}`];
    const attention = { qkv: `${hub}.attn.Wqkv`, output: `${hub}.attn.out_proj` };
    yield* encoderAttention(names, config, own, attention, bias('qkv_proj_bias'));
    yield* biasedNorm(names, [`${own}.attn_output_norm`, `${hub}.norm1`], config);
    yield* names.matrix([`${own}.ffn_gate`, `${hub}.mlp.fc12`], [ffnDim, hiddenDim], bias('mlp_fc1_bias'));
    yield* names.matrix([`${own}.ffn_up`, `${hub}.mlp.fc11`], [ffnDim, hiddenDim], bias('mlp_fc1_bias'));
    yield* names.matrix([`${own}.ffn_down`, `${hub}.mlp.fc2`], [hiddenDim, ffnDim], bias('mlp_fc2_bias'));
    yield* biasedNorm(names, [`${own}.layer_output_norm`, `${hub}.norm2`], config);
  }
}
