/**
 * Qwen2-VL (arXiv:2409.12191) and Qwen2.5-VL (arXiv:2502.13923): rows of images of any size in the prompt of a Qwen 2 whose
 * rotary pairs are rotated by three coordinates (M-RoPE). Four patches become a row, `W2 gelu(W1 [norm(x1) ... norm(x4)])`. Qwen2.5-VL
 * has RMS norms, gated FFNs and windows in its encoder, where Qwen2-VL has layer norms and plain FFNs.
 */
import type { ProgramTensor } from '@winnow/ops';
import {
  gatedFeedForward,
  layerNorm,
  linear,
  preNormLayer,
  rmsNorm,
  type NormWriter,
  type PreNormBlock,
} from '../blocks/decoder-blocks.js';
import { Fields } from '../file/fields.js';
import { addWeights, type Weight } from '../file/weights.js';
import type { DecoderArchitecture, ModelDescription, ModelFile, VisionPart } from '../program/architecture.js';
import { tensorNames, type Bias } from '../program/tensors.js';
import { textPartOf } from '../settings/text-part.js';
import {
  hasQwenVision,
  layerIndices,
  qwenEncoder,
  qwenLayerTensors,
  qwenTextPart,
  type QwenEncoderNames,
} from '../vision/qwen-tower.js';
import { describeScaledVision, type ScaledDesign } from '../vision/scaled-tower.js';
import { quickFeedForward } from '../vision/tower.js';
import { describeQwen2 } from './qwen2.js';
import { describeWithImages, type DescribeDecoder } from './with-images.js';

/** The sections of M-RoPE of the published models. */
const rope = { base: 1_000_000, sections: [16, 24, 24] };

/** The decoder, from a GGUF file or a folder. @param imageTokenId the image token. Default: it takes no images */
export function describeQwen2Text(file: ModelFile, imageTokenId?: number): Promise<ModelDescription> {
  return describeQwen2(file, imageTokenId, { architecture: 'qwen2vl', rope });
}

/** In older files the settings of the decoder are those of the whole model. */
const decoders: Readonly<Record<string, DescribeDecoder>> = {
  qwen2_5_vl_text: describeQwen2Text,
  qwen2_vl_text: describeQwen2Text,
};

export const qwen2vl: DecoderArchitecture = {
  name: 'qwen2vl',
  models: 'Qwen2-VL and Qwen2.5-VL 2B to 72B (text and images)',
  limits: [
    'Images have at most 1,280 rows (1,003,520 pixels); larger ones are reduced to that, as by `max_pixels`. Videos are not read.',
    'Images: a Hugging Face folder, or a GGUF file and an `mmproj` file. Converted to a folder, the language model is a Qwen 2.',
    'Without YaRN. Policies that move the positions of queries (`streaming` with sinks) are rejected.',
  ],
  ggufNames: ['qwen2vl'],
  hubNames: ['qwen2_5_vl', 'qwen2_vl', 'qwen2_5_vl_text', 'qwen2_vl_text'],
  hubClass: 'Qwen2_5_VLForConditionalGeneration',
  preTokenizer: 'qwen2',
  describe(file) {
    if (!hasQwenVision(file)) return describeQwen2Text(textPartOf(file, qwenTextPart));
    const imageTokenId = file.fields.integer('image_token_id', 151655);
    return describeWithImages(file, qwenTextPart, imageTokenId, describeQwen2Vision, decoders);
  },
};

/** Differences between the encoders. */
interface Variant {
  /** Defaults of the configuration class. */
  readonly values: Readonly<Record<string, unknown>>;
  readonly settings: Omit<QwenEncoderNames, 'architecture'>;
  readonly norm: NormWriter;
  readonly normBias: Bias;
  readonly feedForward: PreNormBlock['feedForward'];
  /** Names of the FFN matrices in the checkpoint. */
  readonly ffn: Readonly<Record<string, string>>;
}

const common = { depth: 32, num_heads: 16, patch_size: 14, spatial_merge_size: 2, temporal_patch_size: 2 };

const qwen25Vision: Variant = {
  values: {
    ...{ ...common, hidden_size: 3584, intermediate_size: 3420, out_hidden_size: 3584, hidden_act: 'silu' },
    ...{ window_size: 112, fullatt_block_indexes: [7, 15, 23, 31] },
  },
  settings: { outputDim: 'out_hidden_size' },
  ...{ norm: rmsNorm, normBias: 'none', feedForward: gatedFeedForward },
  ffn: { ffn_gate: 'gate_proj', ffn_up: 'up_proj', ffn_down: 'down_proj' },
};

/** In Qwen2-VL, `hidden_size` is the length of the output rows. */
const qwen2Vision: Variant = {
  values: { ...common, embed_dim: 1280, hidden_size: 3584, mlp_ratio: 4, hidden_act: 'quick_gelu' },
  settings: { outputDim: 'hidden_size', hiddenDim: 'embed_dim' },
  ...{ norm: layerNorm, normBias: 'required', feedForward: quickFeedForward },
  ffn: { ffn_up: 'fc1', ffn_down: 'fc2' },
};

/** Describes the image encoder. @param weights those of the decoder, to which the encoder's are added */
export function describeQwen2Vision(file: ModelFile, weights: Map<string, Weight>, imageTokenId: number): VisionPart {
  const isQwen25 = file.fields.string('model_type') === 'qwen2_5_vl';
  const variant = isQwen25 ? qwen25Vision : qwen2Vision;
  const { norm, normBias, feedForward, ffn } = variant;
  const own = Fields.ofJson(`${file.fields.source}: vision_config`, file.fields.raw('vision_config') ?? {});
  const given = own.over(Fields.ofJson(own.source, variant.values), Object.keys(variant.values));
  const fields = isQwen25 ? given : ofQwen2(given, file.format);
  const encoder = qwenEncoder({ ...file, fields }, weights, { architecture: 'qwen2vl', ...variant.settings });
  const { config, hub, numInputs, numMerged, dim, patchSize, mergeSize } = encoder;
  const names = tensorNames(file);
  const requests = [
    ...names.matrix(['v.patch_embd', `${hub}.patch_embed.proj`], [config.hiddenDim, numInputs], 'none'),
    ...names.norm(['v.post_ln', `${hub}.merger.ln_q`], config.hiddenDim, normBias),
    ...names.matrix(['v.mm.0', `${hub}.merger.mlp.0`], [numMerged, numMerged], 'required'),
    ...names.matrix(['v.mm.2', `${hub}.merger.mlp.2`], [dim, numMerged], 'required'),
    ...qwenLayerTensors(file, config, hub, ffn, normBias),
  ];
  addWeights(weights, file.store, requests, isPlaceholder);
  return describeScaledVision({
    ...{ ...encoder, fields: given, weights, imageTokenId },
    ...(isQwen25 ? { windows: windowsOf(fields, patchSize * mergeSize, config.numLayers) } : {}),
    layer: (rotary) => preNormLayer({ norm, attention: () => ({ rotary }), ...(feedForward && { feedForward }) }),
    finish(step, hidden, merge) {
      const squares = merge(norm(step, 'post_ln', hidden[config.numLayers - 1] as ProgramTensor));
      const y = step.b.activation('activation', { x: linear(step, 'mm.0', squares) }, { kind: 'gelu-erf' });
      return [linear(step, 'mm.2', y)];
    },
  });
}

/** A placeholder tensor of early `mmproj` files. */
const isPlaceholder = (name: string): boolean => name === 'v.position_embd.weight';

/** Checks the activation, which is fixed, and computes the FFN length, which config.json specifies as a ratio. */
function ofQwen2(fields: Fields, format: ModelFile['format']): Fields {
  const activation = fields.string('hidden_act');
  if (activation !== 'quick_gelu') throw fields.refusal('hidden_act', 'quick_gelu', activation);
  const read = fields.without((name) => name === 'hidden_act');
  if (format === 'gguf') return read;
  return read.with({ intermediate_size: Math.floor(fields.count('embed_dim') * fields.number('mlp_ratio')) });
}

/** @param unit width of a merged square in pixels */
function windowsOf(fields: Fields, unit: number, numLayers: number): NonNullable<ScaledDesign['windows']> {
  const size = fields.count('window_size');
  const side = Math.floor(size / unit);
  if (side === 0) throw fields.refusal('window_size', `at least ${unit}, a square of patches`, size);
  const whole = layerIndices(fields, 'fullatt_block_indexes', numLayers);
  return { side, hasWindows: (layer) => !whole.includes(layer) };
}
