/** What the encoders of Qwen2-VL, Qwen2.5-VL and Qwen3-VL have in common: their settings and the tensors of their layers. */
import type { Fields } from '../file/fields.js';
import type { Weight, WeightRequest } from '../file/weights.js';
import type { ModelFile } from '../program/architecture.js';
import { tensorNames, type Bias } from '../program/tensors.js';
import { encoderFromHub, type EncoderConfig } from '../settings/encoder-settings.js';
import type { TextPart } from '../settings/text-part.js';

export interface QwenEncoder {
  readonly config: EncoderConfig;
  /** Prefix of its tensors in the checkpoint, without the dot. */
  readonly hub: string;
  readonly patchSize: number;
  readonly mergeSize: number;
  readonly numFrames: number;
  /** Values of a patch, of the states of a square, and of a row. */
  readonly numInputs: number;
  readonly numMerged: number;
  readonly dim: number;
}

export interface QwenEncoderNames {
  readonly architecture: string;
  /** Names of the settings for the lengths of rows and of hidden states. Default of the latter: `hidden_size`. */
  readonly outputDim: string;
  readonly hiddenDim?: string;
}

/**
 * Reads the settings of an encoder.
 * @param file settings and tensors of the encoder
 * @param weights weights of the decoder
 * @throws {FormatError} for unsupported settings, and when rows do not have the hidden size of the decoder
 */
export function qwenEncoder(
  file: ModelFile,
  weights: ReadonlyMap<string, Weight>,
  { architecture, outputDim, hiddenDim = 'hidden_size' }: QwenEncoderNames,
): QwenEncoder {
  const { fields, store } = file;
  const hub = store.tensors.has(patchNames[1]) ? 'model.visual' : 'visual';
  const dim = weights.get('token_embd.weight')?.shape[1] as number;
  const stored = fields.count(outputDim);
  if (stored !== dim) throw fields.refusal(outputDim, `${dim}, the hidden size of the decoder`, stored);
  if (fields.count('in_channels', 3) !== 3) throw fields.refusal('in_channels', '3', fields.raw('in_channels'));
  const names = { num_hidden_layers: 'depth', num_attention_heads: 'num_heads' };
  const read = fields.without((name) => Object.hasOwn(names, name)).with({ hidden_size: fields.count(hiddenDim) });
  const config = encoderFromHub(
    { ...file, fields: read },
    {
      ...{ architecture, epsilon: ['layer_norm_eps', 1e-6], contextLength: 1, names },
      embedding: patchNames.find((name) => store.tensors.has(name)) ?? 'visual.patch_embed.proj.weight',
    },
  );
  if (config.headDim % 4 !== 0) {
    throw fields.refusal('num_heads', 'heads with a size that is a multiple of 4', config.numHeads);
  }
  const [patchSize, mergeSize] = [fields.count('patch_size'), fields.count('spatial_merge_size')];
  const numFrames = fields.count('temporal_patch_size');
  const numInputs = 3 * numFrames * patchSize ** 2;
  return { config, hub, patchSize, mergeSize, numFrames, numInputs, numMerged: config.hiddenDim * mergeSize ** 2, dim };
}

/** The weight of the patches in `mmproj` files and in checkpoints. */
const patchNames = [
  'v.patch_embd.weight',
  'model.visual.patch_embed.proj.weight',
  'visual.patch_embed.proj.weight',
] as const;

/** Whether a checkpoint has an image encoder. */
export function hasQwenVision({ format, store }: ModelFile): boolean {
  return format !== 'gguf' && patchNames.some((name) => store.tensors.has(name));
}

/** Names of the tensors of the decoder and of the encoder in a checkpoint. */
export const qwenTextPart: TextPart = {
  renamed: [['model.language_model.', 'model.']],
  otherParts: ['visual.', 'model.visual.'],
};

/** A setting that lists layers of the encoder. @throws {FormatError} for anything but indices below `numLayers` */
export function layerIndices(fields: Fields, name: string, numLayers: number): readonly number[] {
  const layers = fields.raw(name);
  const isLayer = (value: unknown): boolean =>
    Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) < numLayers;
  if (Array.isArray(layers) && layers.every(isLayer)) return layers as number[];
  throw fields.refusal(name, `layers below ${numLayers}`, layers);
}

/** The tensors of the layers. @param ffn names of the matrices of the FFN in the checkpoint */
export function* qwenLayerTensors(
  file: ModelFile,
  { hiddenDim, ffnDim, numLayers }: EncoderConfig,
  hub: string,
  ffn: Readonly<Record<string, string>>,
  normBias: Bias,
): Generator<WeightRequest> {
  const names = tensorNames(file);
  for (let layer = 0; layer < numLayers; layer++) {
    const [to, from] = [`v.blk.${layer}`, `${hub}.blocks.${layer}`];
    yield* names.norm([`${to}.attn_norm`, `${from}.norm1`], hiddenDim, normBias);
    yield* names.norm([`${to}.ffn_norm`, `${from}.norm2`], hiddenDim, normBias);
    const part = (which: string): [string, string, number] => [`${to}.attn_${which}`, '', hiddenDim];
    const fused = [`${to}.attn_qkv`, `${from}.attn.qkv`] as const;
    yield* names.fused({ fused, parts: ['q', 'k', 'v'].map(part), numInputs: hiddenDim, bias: 'required' });
    yield* names.matrix([`${to}.attn_output`, `${from}.attn.proj`], [hiddenDim, hiddenDim], 'required');
    for (const [own, theirs] of Object.entries(ffn)) {
      const shape = own === 'ffn_down' ? ([hiddenDim, ffnDim] as const) : ([ffnDim, hiddenDim] as const);
      yield* names.matrix([`${to}.${own}`, `${from}.mlp.${theirs}`], shape, 'required');
    }
  }
}
