/**
 * GPT-2: pre-norm blocks with LayerNorm, multi-head attention without RoPE, `x += attn(ln(x)); x +=
 * down(gelu(up(ln(x))))`, learned positions added to the embeddings, biases everywhere. Hugging Face checkpoints store
 * the matrices as `[numInputs, numOutputs]`.
 */
import { add, describeDecoder, layerNorm, plainFeedForward, preNormLayer } from '../blocks/decoder-blocks.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { Architecture, ModelFile } from '../program/architecture.js';
import type { DecoderConfig } from '../program/config.js';
import { embedTokens, type DecoderStep } from '../program/decoder-program.js';
import { isDerivedTensor, tensorNames } from '../program/tensors.js';
import { unrotatedFromGguf } from '../settings/gguf-settings.js';
import { unrotatedFromHub } from '../settings/hub-settings.js';

export const gpt2: Architecture = {
  name: 'gpt2',
  models: 'GPT-2',
  limits: ['The context cannot exceed the learned positions.'],
  ggufNames: ['gpt2'],
  hubNames: ['gpt2'],
  hubClass: 'GPT2LMHeadModel',
  preTokenizer: 'gpt-2',
  async describe(file) {
    // the first checkpoints were saved without the outer module name
    const outer = file.store.tensors.has('transformer.wte.weight') ? 'transformer.' : '';
    const config =
      file.format === 'gguf'
        ? unrotatedFromGguf(file, { architecture: 'gpt2', norm: 'layer', activation: 'gelu_pytorch_tanh' })
        : configOfHub(file, outer);
    const maxPositions = config.contextLength;
    const isDerived = (name: string): boolean =>
      isDerivedTensor(name, config) || /(^|\.)h\.\d+\.attn\.(bias|masked_bias)$/.test(name);
    const weights = collectWeights(file.store, requests(file, config, outer), isDerived);
    const scaleOf = scales(file, config);
    return describeDecoder({
      config: { ...config, maxPositions },
      weights,
      embed: (step) => add(step, embedTokens(step), embedPositions(step)),
      norm: layerNorm,
      layer: preNormLayer({
        norm: layerNorm,
        attention: (layer) => ({ scale: scaleOf(layer) }),
        feedForward: plainFeedForward,
      }),
    });
  },
};

function embedPositions({ b, weight, positions }: DecoderStep): ReturnType<typeof embedTokens> {
  return b.activation('embedding-lookup', { table: weight('position_embd.weight'), tokens: positions });
}

function configOfHub(file: ModelFile, outer: string): DecoderConfig {
  return unrotatedFromHub(file, {
    architecture: 'gpt2',
    epsilon: ['layer_norm_epsilon', 1e-5],
    activation: ['activation_function', 'gelu_new'],
    contextLength: 1024,
    isTied: true,
    embedding: `${outer}wte.weight`,
    names: {
      hidden_size: 'n_embd',
      num_attention_heads: 'n_head',
      num_hidden_layers: 'n_layer',
      max_position_embeddings: 'n_positions',
      intermediate_size: 'n_inner',
    },
    ffnDim: (hiddenDim) => 4 * hiddenDim,
  });
}

/** `scale_attn_weights`, and `scale_attn_by_inverse_layer_idx` (used for training in half precision). */
function scales({ format, fields }: ModelFile, { headDim }: DecoderConfig): (layer: number) => number {
  const says = (name: string, fallback: boolean): boolean =>
    format === 'safetensors' ? fields.boolean(name, fallback) : fallback;
  const scale = says('scale_attn_weights', true) ? 1 / Math.sqrt(headDim) : 1;
  const byLayer = says('scale_attn_by_inverse_layer_idx', false);
  return (layer) => (byLayer ? scale / (layer + 1) : scale);
}

function* requests(file: ModelFile, config: DecoderConfig, outer: string): Generator<WeightRequest> {
  const { vocabSize, hiddenDim, numLayers, numHeads, numKvHeads, headDim, ffnDim, contextLength, isTied } = config;
  const names = tensorNames(file);
  const inputsOf = numHeads * headDim;
  yield* names.matrix(['token_embd', `${outer}wte`], [vocabSize, hiddenDim], 'none');
  yield* names.matrix(['position_embd', `${outer}wpe`], [contextLength, hiddenDim], 'none');
  yield* names.norm(['output_norm', `${outer}ln_f`], hiddenDim, 'required');
  if (!isTied) yield* names.matrix(['output', 'lm_head'], [vocabSize, hiddenDim], 'none');
  for (let layer = 0; layer < numLayers; layer++) {
    const [own, hub] = [`blk.${layer}`, `${outer}h.${layer}`];
    yield* names.norm([`${own}.attn_norm`, `${hub}.ln_1`], hiddenDim, 'required');
    yield* names.norm([`${own}.ffn_norm`, `${hub}.ln_2`], hiddenDim, 'required');
    yield* names.fused({
      fused: [`${own}.attn_qkv`, `${hub}.attn.c_attn`],
      parts: [
        [`${own}.attn_q`, `${hub}.attn.q_attn`, inputsOf],
        [`${own}.attn_k`, `${hub}.attn.k_attn`, numKvHeads * headDim],
        [`${own}.attn_v`, `${hub}.attn.v_attn`, numKvHeads * headDim],
      ],
      numInputs: hiddenDim,
      bias: 'required',
      isTransposedInHub: true,
    });
    yield* names.matrix([`${own}.attn_output`, `${hub}.attn.c_proj`], [hiddenDim, inputsOf], 'required', true);
    yield* names.matrix([`${own}.ffn_up`, `${hub}.mlp.c_fc`], [ffnDim, hiddenDim], 'required', true);
    yield* names.matrix([`${own}.ffn_down`, `${hub}.mlp.c_proj`], [hiddenDim, ffnDim], 'required', true);
  }
}
