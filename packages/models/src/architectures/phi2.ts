/**
 * Phi 1, 1.5 and 2: one LayerNorm per block, whose output feeds attention and FFN in parallel,
 * `n = ln(x); x += attn(n) + down(gelu(up(n)))`; split-half rotary pairs over part of each head, biases everywhere.
 */
import { add, attentionBlock, describeDecoder, layerNorm, plainFeedForward } from '../blocks/decoder-blocks.js';
import { rotaryOf } from '../blocks/rotary.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { Architecture, ModelFile } from '../program/architecture.js';
import type { RotaryDecoderConfig } from '../program/config.js';
import { headNormTensors, isDerivedTensor, plainFfnTensors, tensorNames } from '../program/tensors.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub } from '../settings/hub-settings.js';

export const phi2: Architecture = {
  name: 'phi2',
  models: 'Phi 1, 1.5, 2',
  ggufNames: ['phi2'],
  hubNames: ['phi'],
  hubClass: 'PhiForCausalLM',
  preTokenizer: 'phi-2',
  async describe(file) {
    const config = await configOf(file);
    const hasHeadNorms = file.format === 'safetensors' && file.fields.boolean('qk_layernorm', false);
    const tensors = requests(file, config, hasHeadNorms);
    const weights = collectWeights(file.store, tensors, (name) => isDerivedTensor(name, config));
    const rotary = rotaryOf(file.fields, config.rope);
    return describeDecoder({
      config,
      weights,
      rotaries: [rotary],
      norm: layerNorm,
      layer(step, layer, x) {
        const normed = layerNorm(step, `blk.${layer}.attn_norm`, x);
        const attended = attentionBlock(step, layer, normed, {
          rotary,
          ...(hasHeadNorms ? { normalizeHeads: (name, heads) => layerNorm(step, `${name}_norm`, heads) } : {}),
        });
        return add(step, add(step, x, attended), plainFeedForward(step, layer, normed));
      },
    });
  },
};

async function configOf(file: ModelFile): Promise<RotaryDecoderConfig> {
  if (file.format === 'gguf') {
    return configFromGguf(file, { architecture: 'phi2', norm: 'layer', activation: 'gelu_pytorch_tanh' });
  }
  return configFromHub(file, {
    architecture: 'phi2',
    epsilon: ['layer_norm_eps', 1e-5],
    activation: ['hidden_act', 'gelu_new'],
    rope: { share: 0.5 },
    known: ['qk_layernorm'],
  });
}

function* requests(file: ModelFile, config: RotaryDecoderConfig, hasHeadNorms: boolean): Generator<WeightRequest> {
  const { vocabSize, hiddenDim, numLayers, numHeads, numKvHeads, headDim, isTied } = config;
  const names = tensorNames(file);
  yield* names.matrix(['token_embd', 'model.embed_tokens'], [vocabSize, hiddenDim], 'none');
  yield* names.norm(['output_norm', 'model.final_layernorm'], hiddenDim, 'required');
  if (isTied) yield names.bias(['output', 'lm_head'], vocabSize);
  else yield* names.matrix(['output', 'lm_head'], [vocabSize, hiddenDim], 'required');
  for (let layer = 0; layer < numLayers; layer++) {
    const [own, hub] = [`blk.${layer}`, `model.layers.${layer}`];
    yield* names.norm([`${own}.attn_norm`, `${hub}.input_layernorm`], hiddenDim, 'required');
    yield* names.fused({
      fused: [`${own}.attn_qkv`, `${hub}.self_attn.qkv_proj`],
      parts: [
        [`${own}.attn_q`, `${hub}.self_attn.q_proj`, numHeads * headDim],
        [`${own}.attn_k`, `${hub}.self_attn.k_proj`, numKvHeads * headDim],
        [`${own}.attn_v`, `${hub}.self_attn.v_proj`, numKvHeads * headDim],
      ],
      numInputs: hiddenDim,
      bias: 'required',
    });
    const output = [`${own}.attn_output`, `${hub}.self_attn.dense`] as const;
    yield* names.matrix(output, [hiddenDim, numHeads * headDim], 'required');
    yield* plainFfnTensors(file, config, layer, ['mlp.fc1', 'mlp.fc2'], { ffnBias: 'required' });
    if (hasHeadNorms) yield* headNormTensors(file, config, layer, { normBias: 'required' }, 'layernorm');
  }
}
