/**
 * GTE v1.5 (arXiv:2407.19669): the blocks of Nomic BERT with biases, GeGLU with fused up and gate matrices, and RoPE with a
 * fixed scaling of the base: the frequency of pair i is divided by `factor^(2 (i + 1) / rotaryDim)`.
 */
import type { Fields } from '../file/fields.js';
import type { WeightRequest } from '../file/weights.js';
import type { EncoderArchitecture, ModelFile } from '../program/architecture.js';
import type { RopeConfig } from '../program/config.js';
import { tensorNames } from '../program/tensors.js';
import { refuseSettings } from '../settings/config-checks.js';
import {
  biasedNorm,
  encoderAttention,
  encoderFromHub,
  encoderPart,
  rowsOf,
  type RotaryEncoderConfig,
} from '../settings/encoder-settings.js';
import { hubRopeFields, ropeFromHub } from '../settings/rope-settings.js';
import { describeNomicBert } from './nomic-bert.js';

export const gte: EncoderArchitecture = {
  name: 'gte',
  models: 'GTE base and large en v1.5, GTE multilingual base, Arctic Embed m 2.0',
  limits: [
    'GGUF files name the architecture `nomic-bert` and have `nomic-bert.hidden_act`, a key that llama.cpp ignores.',
    'The q, k and v matrices must be fused; token weights and rerankers (`classifier`) are not read.',
  ],
  isEncoder: true,
  ggufNames: [],
  hubNames: ['new', 'gte'],
  hubClass: 'NewModel',
  describe: async (checkpoint) => {
    const file = encoderPart(checkpoint, { outer: ['new.', 'model.'], heads: /^(pooler|lm_head|classifier)\./ });
    const config = configOf(file);
    return describeNomicBert(file, config, requests(file, config));
  },
};

/** Settings that change the computation but not the tensors: other values are rejected. */
const neutralValues: Readonly<Record<string, readonly unknown[]>> = {
  layer_norm_type: ['layer_norm'],
  logn_attention_clip1: [false],
  logn_attention_scale: [false],
  pack_qkv: [true],
  position_embedding_type: ['rope'],
};

function configOf(file: ModelFile): RotaryEncoderConfig {
  refuseSettings(file.fields, neutralValues);
  const config = encoderFromHub(file, {
    architecture: 'gte',
    epsilon: ['layer_norm_eps', 1e-12],
    activation: ['hidden_act', 'gelu'],
    contextLength: 2048,
    numHeads: 12,
    embedding: 'embeddings.word_embeddings.weight',
  });
  return { ...config, rope: ropeOf(file.fields, config.headDim) };
}

function ropeOf(fields: Fields, headDim: number): RopeConfig {
  const nested = hubRopeFields(fields);
  if (nested.string('rope_type', nested.string('type', 'default')) !== 'ntk') return ropeFromHub(fields, headDim);
  refuseSettings(nested, { mixed_b: [] });
  const plain = ropeFromHub(fields, headDim, { isPlain: true });
  const factor = nested.number('factor');
  const { rotaryDim } = plain;
  const factors = Array.from({ length: rotaryDim / 2 }, (_, pair) => factor ** ((2 * (pair + 1)) / rotaryDim));
  return { ...plain, scaling: { type: 'factors', factors: Float32Array.from(factors) } };
}

function* requests(file: ModelFile, config: RotaryEncoderConfig): Generator<WeightRequest> {
  const { vocabSize, hiddenDim, ffnDim, numLayers } = config;
  const names = tensorNames(file);
  const types = 'embeddings.token_type_embeddings';
  const numTypes = rowsOf(file.store, `${types}.weight`);
  yield* names.matrix(['token_embd', 'embeddings.word_embeddings'], [vocabSize, hiddenDim], 'none');
  if (numTypes > 0) yield* names.matrix(['token_types', types], [numTypes, hiddenDim], 'none');
  yield* biasedNorm(names, ['token_embd_norm', 'embeddings.LayerNorm'], config);
  for (let layer = 0; layer < numLayers; layer++) {
    const [own, hub] = [`blk.${layer}`, `encoder.layer.${layer}`];
    const attention = { qkv: `${hub}.attention.qkv_proj`, output: `${hub}.attention.o_proj` };
    yield* encoderAttention(names, config, own, attention, 'required');
    yield* biasedNorm(names, [`${own}.attn_output_norm`, `${hub}.attn_ln`], config);
    yield* names.fused({
      fused: [`${own}.ffn_up`, `${hub}.mlp.up_gate_proj`],
      parts: [
        [`${own}.ffn_up`, '', ffnDim],
        [`${own}.ffn_gate`, '', ffnDim],
      ],
      numInputs: hiddenDim,
      bias: 'none',
      isSplit: false,
    });
    yield* names.matrix([`${own}.ffn_down`, `${hub}.mlp.down_proj`], [hiddenDim, ffnDim], 'required');
    yield* biasedNorm(names, [`${own}.layer_output_norm`, `${hub}.mlp_ln`], config);
  }
}
