/** The parts of a checkpoint with a vision encoder: their settings with defaults, and their tensors in the shapes of programs. */
import type { StoredTensor } from '@winnow/bytes';
import { tensorBytes } from '@winnow/tensor';
import { Fields } from '../file/fields.js';
import { reshapedView } from '../file/gathered-views.js';
import type { RequestedStore, WeightRequest } from '../file/weights.js';
import type { ModelFile } from '../program/architecture.js';
import type { DecoderConfig } from '../program/config.js';
import { tensorNames } from '../program/tensors.js';
import { encoderFromHub, type EncoderConfig } from '../settings/encoder-settings.js';

/** A tower: an encoder of a checkpoint, with its own settings. */
export interface Tower {
  /** The settings, completed by the defaults of the configuration class. */
  readonly fields: Fields;
  readonly config: EncoderConfig;
  /** Whether the FFN's activation is `x sigmoid(1.702 x)`. */
  readonly isQuick: boolean;
}

export interface TowerDefaults {
  readonly architecture: string;
  /** Settings by name. */
  readonly values: Readonly<Record<string, unknown>>;
  /** Name of the tensor whose number of rows is taken as the vocabulary size. */
  readonly embedding: string;
  /** Settings of the whole model that apply to the tower. */
  readonly inherited?: readonly string[];
}

/**
 * The settings of a part of config.json.
 * @throws {FormatError} for a missing, invalid or unknown setting
 */
export function towerOf(file: ModelFile, section: string, defaults: TowerDefaults): Tower {
  const raw = file.fields.raw(section) ?? {};
  const given = Fields.ofJson(`${file.fields.source}: ${section}`, raw);
  const own = given.over(file.fields, defaults.inherited ?? []);
  const fields = own.over(Fields.ofJson(file.fields.source, defaults.values), Object.keys(defaults.values));
  const isQuick = fields.raw('hidden_act') === 'quick_gelu';
  const read = isQuick ? fields.without((name) => name === 'hidden_act') : fields;
  const config = encoderFromHub(
    { ...file, fields: read },
    {
      architecture: defaults.architecture,
      epsilon: ['layer_norm_eps', 1e-5],
      activation: ['hidden_act', 'silu'],
      contextLength: 1,
      embedding: defaults.embedding,
    },
  );
  return { fields, config, isQuick };
}

/** Name of the position table. @param prefix prefix of the encoder's tensors in a Hugging Face checkpoint */
export function positionTable({ format }: ModelFile, prefix: string): string {
  return format === 'gguf' ? 'v.position_embd.weight' : `${prefix}embeddings.position_embedding.weight`;
}

/** The patches of an image, in pixels. */
export interface PatchGrid {
  readonly imageSize: number;
  readonly patchSize: number;
  /** Patches per side. As in a convolution, pixels beyond the last patch are dropped: SigLIP so400m has 27 patches of 14 in 384. */
  readonly side: number;
}

/** @throws {FormatError} for an image smaller than a patch, and unless there are 3 channels */
export function gridOf(fields: Fields): PatchGrid {
  const imageSize = fields.count('image_size');
  const patchSize = fields.count('patch_size');
  if (imageSize < patchSize) throw fields.refusal('image_size', `at least ${patchSize}, a patch`, imageSize);
  if (fields.count('num_channels', 3) !== 3) throw fields.refusal('num_channels', '3', fields.raw('num_channels'));
  return { imageSize, patchSize, side: Math.floor(imageSize / patchSize) };
}

/** The tensors of a store, in the shapes of programs. */
export function withShapes(
  store: RequestedStore,
  shapeOf: (name: string, tensor: StoredTensor) => StoredTensor,
): RequestedStore {
  const tensors = new Map([...store.tensors].map(([name, tensor]) => [name, shapeOf(name, tensor)]));
  const { find } = store;
  return { name: store.name, tensors, close: () => store.close(), ...(find === undefined ? {} : { find }) };
}

/** Tensors of vision encoders: convolutions as matrices, and vectors as tables. */
export function visionShape(name: string, tensor: StoredTensor): StoredTensor {
  const { shape } = tensor;
  if (/patch_(embedding|embd|embed\.proj)\.weight$/.test(name) && shape.length >= 4) {
    const [numOutputs, ...kernel] = shape as readonly [number, ...number[]];
    return reshapedView(tensor, [numOutputs, kernel.reduce((product, dim) => product * dim, 1)]);
  }
  if (/class_(embedding|embd\.weight)$/.test(name)) return withZeroRow(tensor);
  if (name.endsWith('image_newline')) return reshapedView(tensor, [1, shape[0] as number]);
  if (name.endsWith('head.probe')) return reshapedView(tensor, shape.slice(-2));
  return tensor;
}

/** A vector as a table of two rows, of which the second is zero. */
function withZeroRow(tensor: StoredTensor): StoredTensor {
  const shape = [2, tensor.shape[0] as number];
  return {
    ...tensor,
    shape,
    sizeBytes: tensorBytes(tensor.dtype, shape),
    async read(target, { byteOffset = 0, ...options } = {}) {
      const numStored = Math.max(0, Math.min(target.length, tensor.sizeBytes - byteOffset));
      if (numStored > 0) await tensor.read(target.subarray(0, numStored), { ...options, byteOffset });
      target.fill(0, numStored);
    },
  };
}

/** The tensors of pre-norm layers as CLIP, SigLIP and their relatives call them. */
export function* layerTensors(
  file: ModelFile,
  { hiddenDim, ffnDim, numLayers }: DecoderConfig,
  own: string,
  hub: string,
): Generator<WeightRequest> {
  const names = tensorNames(file);
  for (let layer = 0; layer < numLayers; layer++) {
    const [to, from] = [`${own}blk.${layer}`, `${hub}encoder.layers.${layer}`];
    yield* names.norm([`${to}.attn_norm`, `${from}.layer_norm1`], hiddenDim, 'required');
    yield* names.norm([`${to}.ffn_norm`, `${from}.layer_norm2`], hiddenDim, 'required');
    const square = [hiddenDim, hiddenDim] as const;
    for (const which of ['q', 'k', 'v']) {
      yield* names.matrix([`${to}.attn_${which}`, `${from}.self_attn.${which}_proj`], square, 'required');
    }
    yield* names.matrix([`${to}.attn_output`, `${from}.self_attn.out_proj`], square, 'required');
    yield* names.matrix([`${to}.ffn_up`, `${from}.mlp.fc1`], [ffnDim, hiddenDim], 'required');
    yield* names.matrix([`${to}.ffn_down`, `${from}.mlp.fc2`], [hiddenDim, ffnDim], 'required');
  }
}
