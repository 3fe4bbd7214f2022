/**
 * Qwen3-VL (arXiv:2511.21631): rows of images of any size in the prompt of a Qwen 3 whose rotary pairs are rotated by interleaved
 * coordinates (M-RoPE). The encoder has rotary and learned positions; the states of some of its layers become further rows, which
 * the first layers of the decoder add to their hidden states (DeepStack, arXiv:2406.04334).
 */
import type { ProgramTensor } from '@winnow/ops';
import { layerNorm, linear, plainFeedForward, preNormLayer } from '../blocks/decoder-blocks.js';
import { Fields } from '../file/fields.js';
import { addWeights, type Weight, type WeightRequest } from '../file/weights.js';
import type { DecoderArchitecture, ModelDescription, ModelFile, VisionPart } from '../program/architecture.js';
import type { DecoderStep } from '../program/decoder-program.js';
import { tensorNames } from '../program/tensors.js';
import type { EncoderConfig } from '../settings/encoder-settings.js';
import { textPartOf } from '../settings/text-part.js';
import { describeScaledVision } from '../vision/scaled-tower.js';
import { hasQwenVision, layerIndices, qwenEncoder, qwenLayerTensors, qwenTextPart } from '../vision/qwen-tower.js';
import { describeQwen3, type Qwen3Images } from './qwen3.js';
import { describeQwen3Moe } from './qwen3moe.js';
import { describeWithImages, type DescribeDecoder } from './with-images.js';

const rope = { base: 500_000, sections: [24, 20, 20], areInterleaved: true };

const defaults = {
  ...{ depth: 27, num_heads: 16, patch_size: 16, spatial_merge_size: 2, temporal_patch_size: 2 },
  ...{ hidden_size: 1152, intermediate_size: 4304, out_hidden_size: 3584, hidden_act: 'gelu_pytorch_tanh' },
  ...{ num_position_embeddings: 2304, deepstack_visual_indexes: [8, 16, 24] },
};

/** @param sources the files that images are supported with */
const limitsOf = (sources: string): readonly string[] => [
  sources,
  'Images have at most 1,280 rows (1,310,720 pixels); larger ones are reduced to that, as by `max_pixels`. Videos are not read.',
  'Without YaRN. Policies that move the positions of queries (`streaming` with sinks) are rejected.',
];

export const qwen3vl: DecoderArchitecture = {
  name: 'qwen3vl',
  models: 'Qwen3-VL 2B to 32B, dense (text and images)',
  limits: /* @__PURE__ */ limitsOf(
    'Images: a Hugging Face folder, or a GGUF file and an `mmproj` file. Converted to a folder, the language model is a Qwen 3.',
  ),
  ggufNames: ['qwen3vl'],
  hubNames: ['qwen3_vl', 'qwen3_vl_text'],
  hubClass: 'Qwen3VLForConditionalGeneration',
  preTokenizer: 'qwen2',
  describe: (file) => describeWhole(file, describeQwen3, 'qwen3_vl_text'),
};

export const qwen3vlmoe: DecoderArchitecture = {
  name: 'qwen3vlmoe',
  models: 'Qwen3-VL 30B-A3B and 235B-A22B (text and images)',
  limits: /* @__PURE__ */ limitsOf(
    'Images: a Hugging Face folder, or a GGUF file and an `mmproj` file. As a folder, the language model is a Qwen 3 with experts.',
  ),
  ggufNames: ['qwen3vlmoe'],
  hubNames: ['qwen3_vl_moe', 'qwen3_vl_moe_text'],
  hubClass: 'Qwen3VLMoeForConditionalGeneration',
  preTokenizer: 'qwen2',
  describe: (file) => describeWhole(file, describeQwen3Moe, 'qwen3_vl_moe_text'),
};

type DescribeText = (file: ModelFile, images: Qwen3Images) => Promise<ModelDescription>;

/** @param textType `model_type` of the decoder */
async function describeWhole(file: ModelFile, describe: DescribeText, textType: string): Promise<ModelDescription> {
  if (!hasQwenVision(file)) return textOf(describe)(textPartOf(file, qwenTextPart));
  const imageTokenId = file.fields.integer('image_token_id', 151655);
  const numDeep = deepLayers(visionFields(file)).length;
  const decoders = { [textType]: (text: ModelFile) => describe(text, { imageTokenId, numDeep, rope }) };
  return describeWithImages(file, qwenTextPart, imageTokenId, describeQwen3Vision, decoders);
}

/** The decoder of a GGUF file, or a folder without images. */
function textOf(describe: DescribeText) {
  return (file: ModelFile, imageTokenId?: number): Promise<ModelDescription> => {
    const { format, fields } = file;
    const key = (): string => `${fields.string('general.architecture')}.n_deepstack_layers`;
    const numDeep = format === 'gguf' ? fields.integer(key(), 0) : 0;
    return describe(file, { imageTokenId, numDeep, rope });
  };
}

/** Decoders of GGUF files by `general.architecture`. */
export const qwen3Decoders: Readonly<Record<string, DescribeDecoder>> = {
  qwen3vl: /* @__PURE__ */ textOf(describeQwen3),
  qwen3vlmoe: /* @__PURE__ */ textOf(describeQwen3Moe),
};

function visionFields({ fields }: ModelFile): Fields {
  const own = Fields.ofJson(`${fields.source}: vision_config`, fields.raw('vision_config') ?? {});
  return own.over(Fields.ofJson(own.source, defaults), Object.keys(defaults));
}

/** The layers of the encoder whose states become further rows. */
function deepLayers(fields: Fields): readonly number[] {
  return layerIndices(fields, 'deepstack_visual_indexes', fields.count('depth'));
}

/** Describes the image encoder. @param weights those of the decoder, to which the encoder's are added */
export function describeQwen3Vision(file: ModelFile, weights: Map<string, Weight>, imageTokenId: number): VisionPart {
  const fields = visionFields(file);
  const encoder = qwenEncoder({ ...file, fields }, weights, { architecture: 'qwen3vl', outputDim: 'out_hidden_size' });
  const { config, mergeSize, dim } = encoder;
  const deep = deepLayers(fields);
  const numPositions = fields.count('num_position_embeddings');
  const positionSide = Math.floor(Math.sqrt(numPositions));
  if (positionSide ** 2 !== numPositions) {
    throw fields.refusal('num_position_embeddings', 'the square of a whole number', numPositions);
  }
  const requests = qwen3Tensors(file, encoder, { numPositions, deep });
  addWeights(weights, file.store, requests);
  const merged = (step: DecoderStep, [first, second]: Layers, squares: ProgramTensor): ProgramTensor => {
    const y = step.b.activation('activation', { x: linear(step, first, squares) }, { kind: 'gelu-erf' });
    return linear(step, second, y);
  };
  return describeScaledVision({
    ...{ ...encoder, fields, weights, imageTokenId, mergeSize, positionSide, dim: (1 + deep.length) * dim },
    layer: (rotary) => preNormLayer({ norm: layerNorm, attention: () => ({ rotary }), feedForward: plainFeedForward }),
    finish(step, hidden, merge) {
      const last = layerNorm(step, 'post_ln', hidden[config.numLayers - 1] as ProgramTensor);
      const further = deep.map((layer) => {
        const squares = layerNorm(step, `deepstack.${layer}.norm`, merge(hidden[layer] as ProgramTensor));
        return merged(step, [`deepstack.${layer}.fc1`, `deepstack.${layer}.fc2`], squares);
      });
      return [merged(step, ['mm.0', 'mm.2'], merge(last)), ...further];
    },
  });
}

/** Names of two linear layers. */
type Layers = readonly [first: string, second: string];

function* qwen3Tensors(
  file: ModelFile,
  { config, hub, numInputs, numMerged, dim }: ReturnType<typeof qwenEncoder>,
  { numPositions, deep }: { readonly numPositions: number; readonly deep: readonly number[] },
): Generator<WeightRequest> {
  const names = tensorNames(file);
  const { hiddenDim }: EncoderConfig = config;
  yield* names.matrix(['v.patch_embd', `${hub}.patch_embed.proj`], [hiddenDim, numInputs], 'required');
  yield* names.matrix(['v.position_embd', `${hub}.pos_embed`], [numPositions, hiddenDim], 'none');
  const merger = ([first, second]: Layers, from: string): WeightRequest[] => [
    ...names.matrix([first, `${from}.linear_fc1`], [numMerged, numMerged], 'required'),
    ...names.matrix([second, `${from}.linear_fc2`], [dim, numMerged], 'required'),
  ];
  yield* names.norm(['v.post_ln', `${hub}.merger.norm`], hiddenDim, 'required');
  yield* merger(['v.mm.0', 'v.mm.2'], `${hub}.merger`);
  for (const [index, layer] of deep.entries()) {
    const [own, from] = [`v.deepstack.${layer}`, `${hub}.deepstack_merger_list.${index}`];
    yield* names.norm([`${own}.norm`, `${from}.norm`], numMerged, 'required');
    yield* merger([`${own}.fc1`, `${own}.fc2`], from);
  }
  yield* qwenLayerTensors(file, config, hub, { ffn_up: 'linear_fc1', ffn_down: 'linear_fc2' }, 'required');
}
