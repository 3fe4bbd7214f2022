/**
 * ModernBERT (arXiv:2412.13663): pre-norm blocks without biases, RoPE, GeGLU, a norm after the embedding (which
 * replaces that of the first block) and one after the last layer. Every third layer has global attention; the others
 * see half a window to each side and have a separate RoPE base.
 */
import { add, attentionBlock, gatedFeedForward, layerNorm } from '../blocks/decoder-blocks.js';
import { describeEncoder, embedWithNorm } from '../blocks/encoder-blocks.js';
import { rotaryOf } from '../blocks/rotary.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { EncoderArchitecture, ModelFile } from '../program/architecture.js';
import { windowOf, type RopeConfig } from '../program/config.js';
import { ropeFrequenciesName } from '../program/decoder-program.js';
import type { Pooling } from '../program/embedding-program.js';
import { isDerivedTensor, settingBias, tensorNames } from '../program/tensors.js';
import { activationOf } from '../settings/config-checks.js';
import {
  encoderAttention,
  encoderFromGguf,
  encoderFromHub,
  encoderPart,
  tokenTensors,
  type EncoderConfig,
  type RotaryEncoderConfig,
} from '../settings/encoder-settings.js';
import { windowedLayersOf } from '../settings/hub-settings.js';
import { readFreqFactors, ropeFromGguf, ropeFromHub, ggufRotaryDim } from '../settings/rope-settings.js';

const usualPeriod = 3;
const usualLocalBase = 10000;

interface Settings {
  readonly config: RotaryEncoderConfig;
  /** RoPE base of the layers with a sliding window. */
  readonly localRope: RopeConfig;
}

export const modernBert: EncoderArchitecture = {
  name: 'modern-bert',
  models:
    'ModernBERT base and large, GTE ModernBERT, Nomic ModernBERT Embed, Granite Embedding R2; ' +
    'GTE-ModernColBERT (multi-vectors); rerankers: GTE ModernBERT',
  limits: [
    'GGUF files do not specify the GELU variant: the tanh approximation is used, as in llama.cpp, unless ' +
      '`modern-bert.hidden_act` is present.',
  ],
  isEncoder: true,
  ggufNames: ['modern-bert'],
  hubNames: ['modernbert'],
  hubClass: 'ModernBertModel',
  head: {
    hubClass: 'ModernBertForSequenceClassification',
    hubPrefix: 'model.',
    dense: 'head.dense',
    norm: 'head.norm',
    output: 'classifier',
    biasSetting: 'classifier_bias',
    pooling: headPooling,
    activation: ({ format, fields }, config) =>
      format === 'gguf' ? config.activation : activationOf(fields, 'classifier_activation', 'gelu'),
  },
  preTokenizer: 'modern-bert',
  async describe(checkpoint) {
    const file = encoderPart(checkpoint, { outer: ['model.'], heads: /^(head|decoder)\./ });
    const { config, localRope } = file.format === 'gguf' ? await ofGguf(file) : ofHub(file);
    const isDerived = (name: string): boolean => isDerivedTensor(name, config);
    const rotary = rotaryOf(file.fields, config.rope);
    const localRotary = rotaryOf(file.fields, localRope, `${ropeFrequenciesName}.local`);
    return describeEncoder({
      config,
      weights: collectWeights(file.store, [...requests(file, config), ...tokenTensors(file, config)], isDerived),
      rotaries: [rotary, localRotary],
      embed: embedWithNorm,
      layer(step, layer, input) {
        const window = windowOf(config, layer);
        const attention = { window, rotary: window === 0 ? rotary : localRotary };
        const normed = layer === 0 ? input : layerNorm(step, `blk.${layer}.attn_norm`, input);
        const x = add(step, input, attentionBlock(step, layer, normed, attention));
        return add(step, x, gatedFeedForward(step, layer, layerNorm(step, `blk.${layer}.ffn_norm`, x)));
      },
      norm: (step, x) => layerNorm(step, 'output_norm', x),
    });
  },
};

/** llama.cpp always pools by the mean; only this project writes the key. */
function headPooling({ format, fields }: ModelFile): Pooling {
  const isGguf = format === 'gguf';
  const setting = isGguf ? 'modern-bert.classifier_pooling' : 'classifier_pooling';
  const pooling = fields.string(setting, isGguf ? 'mean' : 'cls');
  if (pooling === 'cls' || pooling === 'mean') return pooling;
  throw fields.refusal(setting, 'cls or mean', pooling);
}

async function ofGguf(file: ModelFile): Promise<Settings> {
  const { fields, store } = file;
  const architecture = 'modern-bert';
  const key = (name: string): string => `${architecture}.${name}`;
  const base = encoderFromGguf(file, architecture, { activation: 'gelu_pytorch_tanh' });
  const factors = await readFreqFactors(store, ggufRotaryDim(fields, architecture, base.headDim) / 2);
  const rope = ropeFromGguf(fields, architecture, base.headDim, 'halves', factors);
  const period = fields.count(key('attention.sliding_window_pattern'), usualPeriod);
  return {
    config: withWindow(base, rope, fields.integer(key('attention.sliding_window'), 0), period),
    localRope: { ...rope, base: fields.number(key('rope.freq_base_swa'), usualLocalBase) },
  };
}

function ofHub(file: ModelFile): Settings {
  const { fields } = file;
  const base = encoderFromHub(file, {
    architecture: 'modern-bert',
    epsilon: ['norm_eps', 1e-5],
    activation: ['hidden_activation', 'gelu'],
    contextLength: 8192,
    numHeads: 12,
    embedding: 'embeddings.tok_embeddings.weight',
  });
  const globalBase = fields.number('global_rope_theta', 160_000);
  const localBase = fields.isNull('local_rope_theta') ? globalBase : fields.number('local_rope_theta', usualLocalBase);
  // there are two RoPE bases, and neither has the standard name
  const own = fields.without((name) => name === 'rope_theta');
  const rope = ropeFromHub(own, base.headDim, { base: globalBase, layerType: 'full_attention' });
  const localRope = ropeFromHub(own, base.headDim, { base: localBase, layerType: 'sliding_attention' });
  const period = fields.count('global_attn_every_n_layers', usualPeriod);
  const config = withWindow(base, rope, fields.count('local_attention', 128), period);
  const windowedLayers = windowedLayersOf(fields, base.numLayers) ?? config.windowedLayers ?? [];
  return { config: { ...config, windowedLayers }, localRope };
}

/** Every layer except the first of each `period` has the sliding window. */
function withWindow(config: EncoderConfig, rope: RopeConfig, window: number, period: number): RotaryEncoderConfig {
  const windowedLayers = Array.from({ length: config.numLayers }, (_, layer) => layer % period !== 0);
  return { ...config, rope, slidingWindow: window, windowedLayers };
}

function* requests(file: ModelFile, config: EncoderConfig): Generator<WeightRequest> {
  const { vocabSize, hiddenDim, ffnDim, numLayers } = config;
  const names = tensorNames(file);
  const normBias = settingBias(file, 'norm_bias');
  const attentionBias = settingBias(file, 'attention_bias');
  const ffnBias = settingBias(file, 'mlp_bias');
  yield* names.matrix(['token_embd', 'embeddings.tok_embeddings'], [vocabSize, hiddenDim], 'none');
  yield* names.norm(['token_embd_norm', 'embeddings.norm'], hiddenDim, normBias);
  yield* names.norm(['output_norm', 'final_norm'], hiddenDim, normBias);
  for (let layer = 0; layer < numLayers; layer++) {
    const [own, hub] = [`blk.${layer}`, `layers.${layer}`];
    const attention = { qkv: `${hub}.attn.Wqkv`, output: `${hub}.attn.Wo` };
    if (layer > 0) yield* names.norm([`${own}.attn_norm`, `${hub}.attn_norm`], hiddenDim, normBias);
    yield* encoderAttention(names, config, own, attention, attentionBias);
    yield* names.norm([`${own}.ffn_norm`, `${hub}.mlp_norm`], hiddenDim, normBias);
    // the fused matrix of a GGUF file has the name of its second part
    yield* names.fused({
      fused: [`${own}.ffn_up`, `${hub}.mlp.Wi`],
      parts: [
        [`${own}.ffn_gate`, `${hub}.mlp.Wi`, ffnDim],
        [`${own}.ffn_up`, `${hub}.mlp.Wi`, ffnDim],
      ],
      numInputs: hiddenDim,
      bias: ffnBias,
      isSplit: file.store.tensors.has(`${own}.ffn_gate.weight`),
    });
    yield* names.matrix([`${own}.ffn_down`, `${hub}.mlp.Wo`], [hiddenDim, ffnDim], ffnBias);
  }
}
