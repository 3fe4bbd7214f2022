/** Settings of Qwen 3.5 and Qwen3-Next in both formats, and the language model of multimodal checkpoints. */
import { expertsFromGguf, expertsFromHub } from '../blocks/experts.js';
import { Fields } from '../file/fields.js';
import type { ModelFile } from '../program/architecture.js';
import type { ExpertConfig, RotaryDecoderConfig } from '../program/config.js';
import { configFromGguf, withoutPredictors } from '../settings/gguf-settings.js';
import { configFromHub, layersOfType } from '../settings/hub-settings.js';
import { kvHeadsByLayer, listOf } from '../settings/recurrent-settings.js';
import { textPartOf } from '../settings/text-part.js';

/** How the architectures of the family differ. */
export interface Qwen35Variant {
  readonly architecture: string;
  readonly hasExperts: boolean;
  /** Whether recurrent layers have fused projections, with the rows of each key head together. Their GGUF files keep the order of heads. */
  readonly isFusedByHead: boolean;
}

/** Sizes of the recurrent layers. */
export interface DeltaConfig {
  readonly numKeyHeads: number;
  readonly numValueHeads: number;
  readonly keyDim: number;
  readonly valueDim: number;
  readonly numTaps: number;
  /** Mapping of value heads to key heads: see the op `gated-delta`. */
  readonly heads: 'tiled' | 'grouped';
  readonly isFusedByHead: boolean;
}

export interface Qwen35Settings {
  readonly config: RotaryDecoderConfig;
  readonly delta: DeltaConfig;
  readonly experts: ExpertConfig | undefined;
}

const routing = { score: 'softmax', normalize: true } as const;

export async function settingsFromGguf(
  file: ModelFile,
  { architecture, hasExperts, isFusedByHead }: Qwen35Variant,
): Promise<Qwen35Settings> {
  const { fields } = file;
  const key = (name: string): string => `${architecture}.${name}`;
  const { uniform } = kvHeadsByLayer(file, architecture);
  const all = await configFromGguf(uniform, { architecture, norm: 'rms', known: ['expert_count'] });
  const whole = withoutPredictors(file, all);
  const { numLayers } = whole;
  const listed = listOf(fields, key('attention.recurrent_layers'));
  if (listed !== undefined && listed.length < numLayers) {
    throw fields.refusal(key('attention.recurrent_layers'), `an array of ${numLayers}`, listed);
  }
  const recurrentLayers =
    listed === undefined
      ? byInterval(numLayers, fields.count(key('full_attention_interval'), 4))
      : listed.slice(0, numLayers).map((value) => value === true || value === 1);
  const numValueHeads = fields.count(key('ssm.time_step_rank'));
  const keyDim = fields.count(key('ssm.state_size'));
  const innerDim = fields.count(key('ssm.inner_size'), numValueHeads * keyDim);
  const config = { ...whole, recurrentLayers };
  return {
    config,
    delta: checkedDelta(fields, {
      numKeyHeads: fields.count(key('ssm.group_count')),
      numValueHeads,
      keyDim,
      valueDim: innerDim / numValueHeads,
      numTaps: fields.count(key('ssm.conv_kernel'), 4),
      heads: isFusedByHead ? 'grouped' : 'tiled',
      isFusedByHead,
    }),
    experts: hasExperts ? expertsFromGguf(file, config, routing, 'gated') : undefined,
  };
}

/** @param file the result of `languageModel` */
export function settingsFromHub(
  file: ModelFile,
  { architecture, hasExperts, isFusedByHead }: Qwen35Variant,
): Qwen35Settings {
  const { fields } = file;
  if (!fields.boolean('attn_output_gate', true)) throw fields.refusal('attn_output_gate', 'true', false);
  const whole = configFromHub(hasExperts ? withFfnSize(file) : file, {
    architecture,
    contextLength: 32768,
    headDim: 256,
    rope: { share: 0.25 },
    known: ['num_experts'],
  });
  const { numLayers } = whole;
  const recurrentLayers = fields.has('layer_types')
    ? layersOfType(fields, numLayers, 'linear_attention')
    : byInterval(numLayers, fields.count('full_attention_interval', 4));
  const config = { ...whole, recurrentLayers };
  return {
    config,
    delta: checkedDelta(fields, {
      numKeyHeads: fields.count('linear_num_key_heads', 16),
      numValueHeads: fields.count('linear_num_value_heads', 32),
      keyDim: fields.count('linear_key_head_dim', 128),
      valueDim: fields.count('linear_value_head_dim', 128),
      numTaps: fields.count('linear_conv_kernel_dim', 4),
      heads: 'grouped',
      isFusedByHead,
    }),
    experts: hasExperts ? expertsFromHub(file, config, { ...routing, shared: 'gated' }) : undefined,
  };
}

/** Models with experts in all layers may lack the dense FFN dimension. */
function withFfnSize(file: ModelFile): ModelFile {
  const { fields } = file;
  if (fields.has('intermediate_size')) return file;
  const size = fields.raw('moe_intermediate_size');
  return {
    ...file,
    fields: new Fields(fields.source, (name) => (name === 'intermediate_size' ? size : fields.raw(name))),
  };
}

function byInterval(numLayers: number, interval: number): boolean[] {
  return Array.from({ length: numLayers }, (_, layer) => (layer + 1) % interval !== 0);
}

function checkedDelta(fields: Fields, delta: DeltaConfig): DeltaConfig {
  const { numKeyHeads, numValueHeads, valueDim, numTaps } = delta;
  if (numValueHeads % numKeyHeads !== 0) {
    throw fields.refusal('value heads of recurrent layers', `a multiple of ${numKeyHeads}`, numValueHeads);
  }
  if (!Number.isInteger(valueDim)) throw fields.refusal('ssm.inner_size', `a multiple of ${numValueHeads}`, valueDim);
  if (numTaps < 2) throw fields.refusal('kernel size of the convolution', 'at least 2', numTaps);
  return delta;
}

/** The language model of a multimodal checkpoint: its settings and tensors under the standard names. */
export function languageModel(file: ModelFile): ModelFile {
  return textPartOf(file, { renamed: [['model.language_model.', 'model.']], otherParts: ['model.visual.'] });
}
