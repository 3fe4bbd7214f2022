/**
 * LFM 2, dense and with experts (arXiv:2511.23404): most layers mix tokens with a gated short convolution, the others with
 * grouped-query attention that normalizes each head of q and k:
 * `x += op(rms(x)); x += ffn(rms(x))`, `op = out(c * conv(b * u))`, where `b, c, u` are the thirds of one projection.
 */
import type { ProgramTensor } from '@winnow/ops';
import { add, attentionBlock, describeDecoder, linear, linearRows, rmsNorm } from '../blocks/decoder-blocks.js';
import {
  expertsFromGguf,
  expertsFromHub,
  expertTensors,
  feedForwardOf,
  type HubExpertNames,
} from '../blocks/experts.js';
import { rotaryOf } from '../blocks/rotary.js';
import type { Fields } from '../file/fields.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { Architecture, ModelDescription, ModelFile } from '../program/architecture.js';
import type { ExpertConfig, RotaryDecoderConfig } from '../program/config.js';
import type { DecoderStep } from '../program/decoder-program.js';
import { headNormTensors, isDerivedTensor, tensorNames, type Names } from '../program/tensors.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub, layersOfType } from '../settings/hub-settings.js';
import { kvHeadsByLayer } from '../settings/recurrent-settings.js';

export const lfm2: Architecture = {
  name: 'lfm2',
  models: 'LFM 2 (dense)',
  limits: ['`conv_bias` is not supported.'],
  ggufNames: ['lfm2'],
  hubNames: ['lfm2'],
  hubClass: 'Lfm2ForCausalLM',
  preTokenizer: 'lfm2',
  describe: describeLfm2,
};

/** Describes a model with experts if the settings declare them, else a dense one. */
export async function describeLfm2(file: ModelFile): Promise<ModelDescription> {
  const { config, experts, numTaps } = await (file.format === 'gguf' ? settingsFromGguf(file) : settingsFromHub(file));
  const weights = collectWeights(file.store, requests(file, config, experts, numTaps), (name) =>
    isDerivedTensor(name, config),
  );
  const rotary = rotaryOf(file.fields, config.rope);
  const feedForward = feedForwardOf(experts);
  return describeDecoder({
    config: experts === undefined ? config : { ...config, experts },
    weights,
    rotaries: [rotary],
    norm: rmsNorm,
    layer(step, layer, input) {
      const normed = rmsNorm(step, `blk.${layer}.attn_norm`, input);
      const mixed = isConvolution(config, layer)
        ? convolution(step, layer, normed, numTaps)
        : attentionBlock(step, layer, normed, {
            rotary,
            normalizeHeads: (name, heads) => rmsNorm(step, `${name}_norm`, heads),
          });
      const x = add(step, input, mixed);
      return add(step, x, feedForward(step, layer, rmsNorm(step, `blk.${layer}.ffn_norm`, x)));
    },
  });
}

interface Settings {
  readonly config: RotaryDecoderConfig;
  readonly experts: ExpertConfig | undefined;
  readonly numTaps: number;
}

function isConvolution({ recurrentLayers }: RotaryDecoderConfig, layer: number): boolean {
  return recurrentLayers?.[layer] === true;
}

function convolution(step: DecoderStep, layer: number, x: ProgramTensor, numTaps: number): ProgramTensor {
  const { b, config, weight } = step;
  const own = `blk.${layer}.shortconv`;
  const { hiddenDim } = config;
  const third = (index: number): ProgramTensor =>
    linearRows(step, `${own}.in_proj`, x, index * hiddenDim, (index + 1) * hiddenDim);
  const [before, after, u] = [third(0), third(1), third(2)];
  const z = b.activation('multiply', { a: before, b: u });
  const taps = b.reshape(weight(`${own}.conv.weight`), [hiddenDim, numTaps]);
  const state = step.state(layer, 'conv', [numTaps - 1, hiddenDim]);
  const { y } = b.append('short-conv', { x: z, weight: taps, ...step.stateInputs() }, {}, { state });
  return linear(step, `${own}.out_proj`, b.activation('multiply', { a: y as ProgramTensor, b: after }));
}

const hubExpertNames: HubExpertNames = {
  module: 'feed_forward',
  matrices: ['w1', 'w3', 'w2'],
  scoreBias: 'expert_bias',
};

const routing = { score: 'sigmoid', normalize: true } as const;

async function settingsFromGguf(file: ModelFile): Promise<Settings> {
  const { fields } = file;
  const architecture = fields.string('general.architecture');
  const { uniform, layersWithout: recurrentLayers } = kvHeadsByLayer(file, architecture);
  const known = ['expert_count'];
  const config = await configFromGguf(uniform, { architecture, norm: 'rms', known });
  return {
    config: { ...config, ...(recurrentLayers === undefined ? {} : { recurrentLayers }) },
    experts: fields.integer(`${architecture}.expert_count`, 0) > 0 ? expertsFromGguf(file, config, routing) : undefined,
    numTaps: tapsOf(fields, `${architecture}.shortconv.l_cache`),
  };
}

function tapsOf(fields: Fields, name: string): number {
  const numTaps = fields.count(name, 3);
  if (numTaps < 2) throw fields.refusal(name, 'at least 2', numTaps);
  return numTaps;
}

async function settingsFromHub(file: ModelFile): Promise<Settings> {
  const { fields } = file;
  const hasExperts = fields.string('model_type') === 'lfm2_moe';
  if (fields.boolean('conv_bias', false)) throw fields.refusal('conv_bias', 'false', true);
  const config = configFromHub(file, {
    architecture: hasExperts ? 'lfm2moe' : 'lfm2',
    contextLength: 128000,
    epsilon: ['norm_eps', 1e-5],
    isTied: fields.boolean('tie_embedding', true),
    rope: { base: 1e6 },
    known: ['num_experts'],
  });
  const numDense = fields.integer('num_dense_layers', 2);
  const isExpertLayer = (layer: number): boolean => layer >= numDense;
  const scale = 'routed_scaling_factor';
  return {
    config: {
      ...config,
      ffnDim: hasExperts ? config.ffnDim : adjustedFfnDim(fields, config.ffnDim),
      recurrentLayers: convolutionLayers(fields, config.numLayers),
    },
    experts: hasExperts ? expertsFromHub(file, config, { ...routing, scale, isExpertLayer }) : undefined,
    numTaps: tapsOf(fields, 'conv_L_cache'),
  };
}

/** The FFN dimension after `block_auto_adjust_ff_dim`. */
function adjustedFfnDim(fields: Fields, ffnDim: number): number {
  if (!fields.boolean('block_auto_adjust_ff_dim', true)) return ffnDim;
  const twoThirds = Math.floor((2 * ffnDim) / 3);
  if (fields.isNull('block_ffn_dim_multiplier')) return twoThirds;
  const multiple = fields.count('block_multiple_of', 256);
  const scaled = Math.floor(fields.number('block_ffn_dim_multiplier', 1) * twoThirds);
  return multiple * Math.ceil(scaled / multiple);
}

/** The convolution layers of `layer_types`, or all layers except `full_attn_idxs`. */
function convolutionLayers(fields: Fields, numLayers: number): boolean[] {
  if (!fields.has('layer_types')) {
    const attending = fields.raw('full_attn_idxs');
    if (!Array.isArray(attending)) throw fields.refusal('full_attn_idxs', 'an array, without layer_types', attending);
    return Array.from({ length: numLayers }, (_, layer) => !attending.includes(layer));
  }
  return layersOfType(fields, numLayers, 'conv');
}

function* requests(
  file: ModelFile,
  config: RotaryDecoderConfig,
  experts: ExpertConfig | undefined,
  numTaps: number,
): Generator<WeightRequest> {
  const { vocabSize, hiddenDim, numHeads, numKvHeads, headDim, ffnDim, numLayers, isTied } = config;
  const names = tensorNames(file);
  yield* names.matrix(['token_embd', 'model.embed_tokens'], [vocabSize, hiddenDim], 'none');
  if (!isTied) yield* names.matrix(['output', 'lm_head'], [vocabSize, hiddenDim], 'none');
  // some GGUF files store the final norm under the name of an embedding norm
  const ownNorm = file.store.tensors.has('output_norm.weight') ? 'output_norm.weight' : 'token_embd_norm.weight';
  const storedNorm = names.isHub ? 'model.embedding_norm.weight' : ownNorm;
  yield { name: 'output_norm.weight', storedName: storedNorm, shape: [hiddenDim] };
  for (let layer = 0; layer < numLayers; layer++) {
    const [own, hub] = [`blk.${layer}`, `model.layers.${layer}`];
    yield* names.norm([`${own}.attn_norm`, `${hub}.operator_norm`], hiddenDim, 'none');
    yield* names.norm([`${own}.ffn_norm`, `${hub}.ffn_norm`], hiddenDim, 'none');
    const matrix = (pair: Names, numOutputs: number, numInputs: number): WeightRequest[] =>
      names.matrix([`${own}.${pair[0]}`, `${hub}.${pair[1]}`], [numOutputs, numInputs], 'none');
    if (isConvolution(config, layer)) {
      yield* matrix(['shortconv.in_proj', 'conv.in_proj'], 3 * hiddenDim, hiddenDim);
      yield* matrix(['shortconv.out_proj', 'conv.out_proj'], hiddenDim, hiddenDim);
      yield {
        name: `${own}.shortconv.conv.weight`,
        storedName: names.isHub ? `${hub}.conv.conv.weight` : `${own}.shortconv.conv.weight`,
        shape: names.isHub ? [hiddenDim, 1, numTaps] : [hiddenDim, numTaps],
        isFloat: true,
      };
    } else {
      yield* matrix(['attn_q', 'self_attn.q_proj'], numHeads * headDim, hiddenDim);
      yield* matrix(['attn_k', 'self_attn.k_proj'], numKvHeads * headDim, hiddenDim);
      yield* matrix(['attn_v', 'self_attn.v_proj'], numKvHeads * headDim, hiddenDim);
      yield* matrix(['attn_output', 'self_attn.out_proj'], hiddenDim, numHeads * headDim);
      yield* headNormTensors(file, config, layer, {}, 'layernorm');
    }
    if (experts !== undefined && experts.layers[layer] !== false) {
      yield* expertTensors(file, config, experts, layer, hubExpertNames);
    } else {
      yield* matrix(['ffn_gate', 'feed_forward.w1'], ffnDim, hiddenDim);
      yield* matrix(['ffn_up', 'feed_forward.w3'], ffnDim, hiddenDim);
      yield* matrix(['ffn_down', 'feed_forward.w2'], hiddenDim, ffnDim);
    }
  }
}
