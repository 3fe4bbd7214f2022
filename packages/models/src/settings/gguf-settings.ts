/** Settings of decoders in GGUF metadata, with the defaults of llama.cpp. */
import type { ModelFile } from '../program/architecture.js';
import type { DecoderConfig, RopeConfig, RotaryDecoderConfig } from '../program/config.js';
import { activationOf, checked, evenShare, refuseSettings, uniformCount, vocabSizeOf } from './config-checks.js';
import { ggufRotaryDim, readFreqFactors, ropeFromGguf, type RopeSections } from './rope-settings.js';

/** Properties of an architecture that the keys do not express. */
export interface GgufDecoder {
  /** Prefix of the keys. */
  readonly architecture: string;
  readonly norm: 'rms' | 'layer';
  /** Pairing of the rotated dimensions. Default: split halves. */
  readonly layout?: RopeConfig['layout'];
  readonly activation?: 'silu' | 'gelu_pytorch_tanh';
  /** Keys of the list below that the architecture reads, or that llama.cpp ignores. */
  readonly known?: readonly string[];
  /** Sections of M-RoPE. Default: the position rotates all pairs. */
  readonly rope?: Partial<RopeSections>;
}

/** Settings that change the computation but not the tensors: other values are rejected. */
const neutralValues: Readonly<Record<string, readonly unknown[]>> = {
  'attention.causal': [true],
  'attention.clamp_kqv': [0],
  'attention.max_alibi_bias': [0],
  'attention.scale': [0],
  'attention.temperature_scale': [0],
  attn_logit_softcapping: [0],
  final_logit_softcapping: [0],
  embedding_scale: [0, 1],
  residual_scale: [0, 1],
  logit_scale: [0, 1],
  expert_count: [0],
  swin_norm: [false],
};

/**
 * Reads the settings of decoders with RoPE.
 * @throws {FormatError} for a missing, invalid or unknown key
 */
export async function configFromGguf(file: ModelFile, decoder: GgufDecoder): Promise<RotaryDecoderConfig> {
  const { fields, store } = file;
  const { architecture, layout = 'halves', rope } = decoder;
  const config = unrotatedFromGguf(file, decoder);
  const factors = await readFreqFactors(store, ggufRotaryDim(fields, architecture, config.headDim) / 2);
  return { ...config, rope: ropeFromGguf(fields, architecture, config.headDim, layout, factors, rope) };
}

/** The same for models with learned positions. */
export function unrotatedFromGguf(file: ModelFile, decoder: GgufDecoder): DecoderConfig {
  const { fields, store } = file;
  const { architecture, known = [] } = decoder;
  const key = (name: string): string => `${architecture}.${name}`;
  const keyed = Object.entries(neutralValues).map(([name, values]) => [key(name), values] as const);
  refuseSettings(fields, Object.fromEntries(keyed), known.map(key));
  const hiddenDim = fields.count(key('embedding_length'));
  const numHeads = uniformCount(fields, key('attention.head_count'));
  const headDim = fields.count(key('attention.key_length'), evenShare(hiddenDim, numHeads));
  const valueDim = fields.count(key('attention.value_length'), headDim);
  if (valueDim !== headDim) throw fields.refusal(key('attention.value_length'), `the key length ${headDim}`, valueDim);
  const epsilon = decoder.norm === 'rms' ? 'attention.layer_norm_rms_epsilon' : 'attention.layer_norm_epsilon';
  return checked(file, {
    architecture,
    vocabSize: vocabSizeOf(fields, store.tensors.get('token_embd.weight'), fields.raw(key('vocab_size'))),
    hiddenDim,
    numLayers: fields.count(key('block_count')),
    numHeads,
    numKvHeads: uniformCount(fields, key('attention.head_count_kv'), numHeads),
    headDim,
    ffnDim: uniformCount(fields, key('feed_forward_length')),
    contextLength: fields.count(key('context_length')),
    normEps: fields.number(key(epsilon)),
    activation: activationOf(fields, key('hidden_act'), decoder.activation),
    slidingWindow: 0,
    isTied: !store.tensors.has('output.weight'),
  });
}

/** Removes the multi-token prediction layers at the end. @throws {FormatError} when there are no others */
export function withoutPredictors<C extends DecoderConfig>({ fields }: ModelFile, config: C): C {
  const name = `${config.architecture}.nextn_predict_layers`;
  const numExtra = fields.integer(name, 0);
  if (numExtra >= config.numLayers) throw fields.refusal(name, `fewer than the ${config.numLayers} layers`, numExtra);
  return { ...config, numLayers: config.numLayers - numExtra };
}
