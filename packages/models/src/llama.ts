/**
 * The Llama family: Llama 1 to 3, Mistral, TinyLlama, SmolLM. Pre-norm blocks of rotary grouped-query attention and a
 * gated FFN: `x += attn(rms(x)); x += down(act(gate(rms(x))) * up(rms(x)))`.
 */
import type { StoredTensor } from '@winnow/bytes';
import type { ActivationKind, Program, ProgramTensor } from '@winnow/ops';
import type { Architecture, ModelDescription, ModelFile } from './architecture.js';
import type { DecoderConfig } from './decoder-config.js';
import {
  beginDecoder,
  embedTokens,
  endDecoder,
  ropeFrequenciesName,
  type DecoderProgramOptions,
  type DecoderStep,
} from './decoder-program.js';
import { Fields } from './fields.js';
import { ggufRotaryDim, readFreqFactors, ropeFromGguf, ropeFromHub, ropeTable } from './rope-settings.js';
import { collectWeights, type Weight, type WeightRequest } from './weights.js';

/** Values of `hidden_act`. */
const activations: Readonly<Record<string, ActivationKind>> = {
  silu: 'silu',
  swish: 'silu',
  relu: 'relu',
  relu2: 'relu2',
  gelu: 'gelu-erf',
  gelu_new: 'gelu-tanh',
  gelu_pytorch_tanh: 'gelu-tanh',
};

/** Attributes are 32-bit integers; a window of this size never cuts anything off. */
const maxWindow = 2 ** 31 - 1;

export const llama: Architecture = {
  name: 'llama',
  ggufNames: ['llama'],
  hubNames: ['llama', 'mistral'],
  async describe(file) {
    const config = file.format === 'gguf' ? await configFromGguf(file) : configFromHub(file);
    const weights = collectWeights(file.store, requests(config, file), (name) => isDerived(name, config));
    const { frequencies, amplitude } = ropeTable(file.fields, config.rope);
    const constants = new Map([[ropeFrequenciesName, frequencies]]);
    return describeLlama(config, weights, constants, amplitude);
  },
};

function describeLlama(
  config: DecoderConfig,
  weights: ReadonlyMap<string, Weight>,
  constants: ReadonlyMap<string, Float32Array>,
  amplitude: number,
): ModelDescription {
  const description = { config, weights, constants };
  return {
    ...description,
    buildProgram(options: DecoderProgramOptions): Program {
      const step = beginDecoder(description, options);
      let x = embedTokens(step);
      for (let layer = 0; layer < config.numLayers; layer++) {
        step.b.setLayer(layer);
        x = step.b.activation('add', { a: x, b: attentionBlock(step, layer, x, amplitude) });
        x = step.b.activation('add', { a: x, b: feedForward(step, layer, x) });
      }
      endDecoder(step, x, (rows) => norm(step, 'output_norm', rows), options.topK);
      return step.b.build();
    },
  };
}

function norm({ b, weight, config }: DecoderStep, name: string, x: ProgramTensor): ProgramTensor {
  return b.activation('rms-norm', { x, weight: weight(`${name}.weight`) }, { eps: config.normEps });
}

function linear({ b, weight, optionalWeight }: DecoderStep, name: string, x: ProgramTensor): ProgramTensor {
  return b.activation('matmul', { x, weight: weight(`${name}.weight`), bias: optionalWeight(`${name}.bias`) });
}

function attentionBlock(step: DecoderStep, layer: number, input: ProgramTensor, amplitude: number): ProgramTensor {
  const { b, config, positions } = step;
  const { numHeads, numKvHeads, headDim } = config;
  const frequencies = step.constant(ropeFrequenciesName);
  const x = norm(step, `blk.${layer}.attn_norm`, input);
  const heads = (name: string, count: number): ProgramTensor =>
    b.reshape(linear(step, `blk.${layer}.${name}`, x), ['T', count, headDim]);
  const rotate = (heads: ProgramTensor, at: ProgramTensor): ProgramTensor =>
    b.activation('rope', { x: heads, positions: at, frequencies }, { layout: config.rope.layout, amplitude });
  const query = heads('attn_q', numHeads);
  const y = step.attend(layer, {
    q: rotate(query, positions),
    k: rotate(heads('attn_k', numKvHeads), positions),
    v: heads('attn_v', numKvHeads),
    scale: 1 / Math.sqrt(headDim),
    window: Math.min(config.slidingWindow, maxWindow),
    rotateQuery: (at) => rotate(query, at),
  });
  return linear(step, `blk.${layer}.attn_output`, b.reshape(y, ['T', numHeads * headDim]));
}

function feedForward(step: DecoderStep, layer: number, input: ProgramTensor): ProgramTensor {
  const x = norm(step, `blk.${layer}.ffn_norm`, input);
  const gate = linear(step, `blk.${layer}.ffn_gate`, x);
  const up = linear(step, `blk.${layer}.ffn_up`, x);
  const y = step.b.activation('gated-activation', { gate, up }, { kind: step.config.activation });
  return linear(step, `blk.${layer}.ffn_down`, y);
}

async function configFromGguf({ fields, store }: ModelFile): Promise<DecoderConfig> {
  const key = (name: string): string => `llama.${name}`;
  const hiddenDim = fields.count(key('embedding_length'));
  const numHeads = uniformCount(fields, key('attention.head_count'));
  const headDim = fields.count(key('attention.key_length'), evenShare(hiddenDim, numHeads));
  const valueDim = fields.count(key('attention.value_length'), headDim);
  if (valueDim !== headDim) throw fields.refusal(key('attention.value_length'), `the key length ${headDim}`, valueDim);
  const numPairs = ggufRotaryDim(fields, 'llama', headDim) / 2;
  // a model with these is another one than the tensors alone would make
  if (!fields.boolean(key('attention.causal'), true)) throw fields.refusal(key('attention.causal'), 'true', false);
  const numExperts = fields.integer(key('expert_count'), 0);
  if (numExperts > 0) throw fields.refusal(key('expert_count'), '0', numExperts);
  return checked(fields, {
    architecture: 'llama',
    vocabSize: vocabSizeOf(fields, store.tensors.get('token_embd.weight'), fields.raw(key('vocab_size'))),
    hiddenDim,
    numLayers: fields.count(key('block_count')),
    numHeads,
    numKvHeads: uniformCount(fields, key('attention.head_count_kv'), numHeads),
    headDim,
    ffnDim: uniformCount(fields, key('feed_forward_length')),
    contextLength: fields.count(key('context_length')),
    normEps: fields.number(key('attention.layer_norm_rms_epsilon')),
    activation: activationOf(fields, key('hidden_act')),
    rope: ropeFromGguf(fields, 'llama', headDim, 'neighbours', await readFreqFactors(store, numPairs)),
    slidingWindow: fields.integer(key('attention.sliding_window'), 0),
    isTied: !store.tensors.has('output.weight'),
  });
}

function configFromHub({ fields, store }: ModelFile): DecoderConfig {
  if (fields.has('quantization_config')) {
    throw fields.refusal('quantization_config', 'unquantised weights', fields.raw('quantization_config'));
  }
  const hiddenDim = fields.count('hidden_size');
  const numHeads = fields.count('num_attention_heads');
  const headDim = fields.count('head_dim', evenShare(hiddenDim, numHeads));
  return checked(fields, {
    architecture: 'llama',
    vocabSize: vocabSizeOf(fields, store.tensors.get('model.embed_tokens.weight'), fields.raw('vocab_size')),
    hiddenDim,
    numLayers: fields.count('num_hidden_layers'),
    numHeads,
    numKvHeads: fields.count('num_key_value_heads', numHeads),
    headDim,
    ffnDim: fields.count('intermediate_size'),
    contextLength: fields.count('max_position_embeddings', 2048),
    normEps: fields.number('rms_norm_eps', 1e-6),
    activation: activationOf(fields, 'hidden_act'),
    rope: ropeFromHub(fields, headDim),
    slidingWindow: fields.string('model_type') === 'mistral' ? fields.integer('sliding_window', 0) : 0,
    isTied: fields.boolean('tie_word_embeddings', false),
  });
}

/** A count that some files give once and some for every layer; the layers must agree. */
function uniformCount(fields: Fields, name: string, fallback?: number): number {
  const value = fields.raw(name);
  if (!Array.isArray(value) && !ArrayBuffer.isView(value)) return fields.count(name, fallback);
  const counts = Array.from(value as ArrayLike<unknown>);
  if (counts.length === 0 || counts.some((count) => count !== counts[0])) {
    throw fields.refusal(name, 'the same number for every layer', counts);
  }
  return Fields.ofJson(fields.source, { [name]: counts[0] }).count(name);
}

/** The usual head size; `undefined` when the heads do not divide the hidden size, so that the file must name it. */
function evenShare(hiddenDim: number, numHeads: number): number | undefined {
  return hiddenDim % numHeads === 0 ? hiddenDim / numHeads : undefined;
}

function activationOf(fields: Fields, name: string): ActivationKind {
  const value = fields.string(name, 'silu');
  const kind = activations[value];
  if (kind === undefined) throw fields.refusal(name, Object.keys(activations).join(', '), value);
  return kind;
}

/** The rows of the embedding table, which must agree with the setting. */
function vocabSizeOf(fields: Fields, table: StoredTensor | undefined, setting: unknown): number {
  const numRows = table?.shape[0];
  if (numRows === undefined) throw fields.refusal('embedding table', 'a tensor', undefined);
  if (numRows === 0) throw fields.refusal('embedding table', 'at least one row', numRows);
  if (setting !== undefined && setting !== numRows)
    throw fields.refusal('vocab_size', `${numRows} embedding rows`, setting);
  return numRows;
}

function checked(fields: Fields, config: DecoderConfig): DecoderConfig {
  const { numHeads, numKvHeads, normEps } = config;
  if (numHeads % numKvHeads !== 0) throw fields.refusal('KV heads', `a divisor of ${numHeads} heads`, numKvHeads);
  if (!(normEps > 0 && Number.isFinite(Math.fround(normEps)))) {
    throw fields.refusal('norm epsilon', 'a positive number that f32 can hold', normEps);
  }
  return config;
}

/** Tensors that some files carry and that follow from the settings or repeat the embedding table. */
function isDerived(name: string, { isTied }: DecoderConfig): boolean {
  return (
    name === 'rope_freqs.weight' ||
    /\.(rotary_emb\.inv_freq|attn_rot_embd(\.weight)?)$/.test(name) ||
    (isTied && name === 'lm_head.weight')
  );
}

function* requests(config: DecoderConfig, file: ModelFile): Generator<WeightRequest> {
  const { vocabSize, hiddenDim, numLayers, numHeads, numKvHeads, headDim, ffnDim, isTied } = config;
  const isHub = file.format === 'safetensors';
  const request = (name: string, hubName: string, shape: number[], optional = false): WeightRequest => ({
    name,
    storedName: isHub ? hubName : name,
    shape,
    optional,
  });
  yield request('token_embd.weight', 'model.embed_tokens.weight', [vocabSize, hiddenDim]);
  yield request('output_norm.weight', 'model.norm.weight', [hiddenDim]);
  if (!isTied) yield request('output.weight', 'lm_head.weight', [vocabSize, hiddenDim]);
  // biases are used where the file has them, and must be there when the settings say so
  const says = (setting: string): boolean => isHub && file.fields.boolean(setting, false);
  const hasBias = (name: string): boolean => says(name.startsWith('ffn') ? 'mlp_bias' : 'attention_bias');
  const matrices: [name: string, hubName: string, numOutputs: number, numInputs: number][] = [
    ['attn_q', 'self_attn.q_proj', numHeads * headDim, hiddenDim],
    ['attn_k', 'self_attn.k_proj', numKvHeads * headDim, hiddenDim],
    ['attn_v', 'self_attn.v_proj', numKvHeads * headDim, hiddenDim],
    ['attn_output', 'self_attn.o_proj', hiddenDim, numHeads * headDim],
    ['ffn_gate', 'mlp.gate_proj', ffnDim, hiddenDim],
    ['ffn_up', 'mlp.up_proj', ffnDim, hiddenDim],
    ['ffn_down', 'mlp.down_proj', hiddenDim, ffnDim],
  ];
  for (let layer = 0; layer < numLayers; layer++) {
    const [own, hub] = [`blk.${layer}`, `model.layers.${layer}`];
    yield request(`${own}.attn_norm.weight`, `${hub}.input_layernorm.weight`, [hiddenDim]);
    yield request(`${own}.ffn_norm.weight`, `${hub}.post_attention_layernorm.weight`, [hiddenDim]);
    for (const [name, hubName, numOutputs, numInputs] of matrices) {
      yield request(`${own}.${name}.weight`, `${hub}.${hubName}.weight`, [numOutputs, numInputs]);
      yield request(`${own}.${name}.bias`, `${hub}.${hubName}.bias`, [numOutputs], !hasBias(name));
    }
  }
}
