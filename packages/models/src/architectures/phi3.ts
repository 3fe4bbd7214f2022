/**
 * Phi 3, 3.5 and 4 (arXiv:2404.14219): the Llama block with fused matrices, which are split on read, and LongRoPE
 * (arXiv:2402.13753): one set of rotary factors for sequences up to the original context length and another for longer
 * ones, see `program/rotary-lengths.ts`.
 */
import type { RopeScaling } from '@winnow/ops';
import { describeDecoder, preNormLayer, rmsNorm } from '../blocks/decoder-blocks.js';
import { rotaryOf } from '../blocks/rotary.js';
import type { Fields } from '../file/fields.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { Architecture, ModelFile } from '../program/architecture.js';
import { windowOf, type RopeConfig, type RotaryDecoderConfig } from '../program/config.js';
import { isDerivedTensor, tensorNames, usualTensors } from '../program/tensors.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { unrotatedFromHub } from '../settings/hub-settings.js';
import { hubRopeFields, readFreqFactors, ropeFromHub } from '../settings/rope-settings.js';

const factorTensors = ['rope_factors_short.weight', 'rope_factors_long.weight'] as const;

export const phi3: Architecture = {
  name: 'phi3',
  models: 'Phi 3, 3.5 (mini, medium), Phi 4, Phi 4 mini',
  limits: [
    'The length of each sequence selects the short or the long RoPE factors, as in Transformers; llama.cpp selects them ' +
      'by the context size. When a generation exceeds the original length, its cached keys are recomputed.',
    'The sliding window of config.json is applied; the key of GGUF files is ignored, as in llama.cpp.',
    '`short_mscale` and `long_mscale` are not supported.',
  ],
  ggufNames: ['phi3'],
  hubNames: ['phi3'],
  hubClass: 'Phi3ForCausalLM',
  async describe(file) {
    const config = file.format === 'gguf' ? await configOfGguf(file) : configOfHub(file);
    const isDerived = (name: string): boolean =>
      isDerivedTensor(name, config) || (factorTensors as readonly string[]).includes(name);
    const requests = usualTensors(file, config, {}, (layer) => fusedFfnTensors(file, config, layer));
    const weights = collectWeights(file.store, requests, isDerived);
    const rotary = rotaryOf(file.fields, config.rope);
    const layer = preNormLayer({ norm: rmsNorm, attention: (index) => ({ rotary, window: windowOf(config, index) }) });
    return describeDecoder({ config, weights, rotaries: [rotary], norm: rmsNorm, layer });
  },
};

/** llama.cpp reads the key of the sliding window without using it, and so does this code. */
async function configOfGguf(file: ModelFile): Promise<RotaryDecoderConfig> {
  const { fields, store } = file;
  const [hasShort, hasLong] = factorTensors.map((name) => store.tensors.has(name)) as [boolean, boolean];
  const key = (name: string): string => `phi3.rope.scaling.${name}`;
  // factors imply their own attention factor, and the type "longrope"
  const own = (name: string): boolean => hasShort && (name === key('attn_factor') || name === key('type'));
  const settings = fields.without(own);
  const config = await configFromGguf({ ...file, fields: settings }, { architecture: 'phi3', norm: 'rms' });
  if (!hasShort && !hasLong) return config;
  const numPairs = config.rope.rotaryDim / 2;
  const [short, long] = await Promise.all(factorTensors.map((name) => readFreqFactors(store, numPairs, name)));
  if (short === undefined)
    throw fields.refusal(factorTensors[0], 'a tensor, because there are long factors', undefined);
  if (long === undefined)
    throw fields.refusal(factorTensors[1], 'a tensor, because there are short factors', undefined);
  const type = fields.string(key('type'), 'longrope');
  if (type !== 'longrope' && type !== 'none') throw fields.refusal(key('type'), 'longrope', type);
  const factor = fields.number(key('factor'), 1);
  if (factor !== 0 && factor !== 1) throw fields.refusal(key('factor'), '1 with LongRoPE factors', factor);
  const original = fields.count(key('original_context_length'), config.contextLength);
  const attentionFactor = fields.number(key('attn_factor'), 1);
  return { ...config, rope: withFactors(config.rope, short, long, original, attentionFactor) };
}

function configOfHub(file: ModelFile): RotaryDecoderConfig {
  const { fields } = file;
  const config = unrotatedFromHub(file, {
    architecture: 'phi3',
    epsilon: ['rms_norm_eps', 1e-5],
    contextLength: 4096,
  });
  const slidingWindow = fields.integer('sliding_window', 0);
  return { ...config, slidingWindow, rope: hubRope(fields, config.headDim) };
}

function hubRope(fields: Fields, headDim: number): RopeConfig {
  const nested = hubRopeFields(fields);
  const type = nested.string('rope_type', nested.string('type', 'default'));
  // early checkpoints call it "su", and some "yarn"
  if (!['longrope', 'su', 'yarn'].includes(type)) return ropeFromHub(fields, headDim);
  for (const name of ['short_mscale', 'long_mscale']) {
    if (nested.has(name))
      throw fields.refusal(`rope_scaling.${name}`, 'no value, because it is not supported', nested.raw(name));
  }
  const plain = ropeFromHub(fields, headDim, { isPlain: true });
  const trained = fields.count('max_position_embeddings', 4096);
  const original = nested.count(
    'original_max_position_embeddings',
    fields.count('original_max_position_embeddings', trained),
  );
  const factor = nested.number('factor', trained / original);
  const derived = factor <= 1 ? 1 : Math.sqrt(1 + Math.log(factor) / Math.log(original));
  const attentionFactor = nested.number('attention_factor', derived);
  const factors = (name: string): Float32Array => {
    const values = nested.raw(name);
    const isList = Array.isArray(values) && values.length === plain.rotaryDim / 2;
    if (isList && values.every((value) => typeof value === 'number')) return Float32Array.from(values as number[]);
    throw fields.refusal(`rope_scaling.${name}`, `${plain.rotaryDim / 2} numbers`, values);
  };
  return withFactors(plain, factors('short_factor'), factors('long_factor'), original, attentionFactor);
}

function withFactors(
  rope: RopeConfig,
  short: Float32Array,
  long: Float32Array,
  contextLength: number,
  attentionFactor: number,
): RopeConfig {
  const scaling = (factors: Float32Array): RopeScaling => ({ type: 'factors', factors, attentionFactor });
  return { ...rope, scaling: scaling(short), beyond: { contextLength, scaling: scaling(long) } };
}

/** The matrices of a GLU FFN, of which files store gate and up as one. */
export function* fusedFfnTensors(
  file: ModelFile,
  { hiddenDim, ffnDim }: RotaryDecoderConfig,
  layer: number,
): Generator<WeightRequest> {
  const names = tensorNames(file);
  const [own, hub] = [`blk.${layer}`, `model.layers.${layer}.mlp`];
  // the fused matrix of a GGUF file has the name of its second part
  yield* names.fused({
    fused: [`${own}.ffn_up`, `${hub}.gate_up_proj`],
    parts: [
      [`${own}.ffn_gate`, `${hub}.gate_proj`, ffnDim],
      [`${own}.ffn_up`, `${hub}.up_proj`, ffnDim],
    ],
    numInputs: hiddenDim,
    bias: 'none',
    isSplit: file.store.tensors.has(`${own}.ffn_gate.weight`),
  });
  yield* names.matrix([`${own}.ffn_down`, `${hub}.down_proj`], [hiddenDim, ffnDim], 'none');
}
