/** The tensors of decoders: their names in each format, fused or separate. */
import type { WeightRequest } from '../file/weights.js';
import type { ModelFile } from './architecture.js';
import { kvLayerOf, type DecoderConfig } from './config.js';

/** Whether a tensor has no bias, has one if the file contains it, or must have one. */
export type Bias = 'none' | 'optional' | 'required';

/** How a file stores a matrix; `rows` selects a part of a fused one. */
type Storing = Pick<WeightRequest, 'rows' | 'storedAs' | 'order'>;

/** Names of one tensor without `.weight`: in programs and GGUF files, and in Hugging Face checkpoints. */
export type Names = readonly [own: string, hub: string];

/** Several matrices that a file may store as one, concatenated along the rows. */
export interface FusedParts {
  readonly fused: Names;
  readonly parts: readonly (readonly [own: string, hub: string, numOutputs: number])[];
  readonly numInputs: number;
  readonly bias: Bias;
  /** Hugging Face checkpoints store `[numInputs, numOutputs]`. */
  readonly isTransposedInHub?: boolean;
  /** Whether the file stores the parts. Default: true if it has no tensor of the fused name. */
  readonly isSplit?: boolean;
  /** The row of the fused tensor for each row of the parts one after another. Default: the same row. */
  readonly storedRowOf?: (row: number) => number;
}

/** Creates requests for tensors by the names of a file's format. */
export interface TensorNames {
  readonly isHub: boolean;
  vector(names: Names, size: number, storedAs?: 'minus-one'): WeightRequest[];
  matrix(names: Names, shape: readonly [number, number], bias: Bias, isTransposedInHub?: boolean): WeightRequest[];
  norm(names: Names, size: number, bias: Bias): WeightRequest[];
  /** A bias whose matrix is requested separately. */
  bias(names: Names, size: number): WeightRequest;
  fused(parts: FusedParts): WeightRequest[];
}

export function tensorNames({ format, store }: ModelFile): TensorNames {
  const isHub = format === 'safetensors';
  const storedName = ([own, hub]: Names): string => (isHub ? hub : own);
  const biasOf = (own: string, stored: string, size: number, bias: Bias, storing: Storing = {}): WeightRequest[] =>
    bias === 'none'
      ? []
      : [
          {
            name: `${own}.bias`,
            storedName: `${stored}.bias`,
            shape: [size],
            optional: bias === 'optional',
            ...(storing.rows === undefined ? {} : { rows: storing.rows }),
          },
        ];
  const linear = (own: string, stored: string, shape: readonly number[], bias: Bias, storing: Storing = {}) => [
    { name: `${own}.weight`, storedName: `${stored}.weight`, shape, ...storing },
    ...biasOf(own, stored, shape[0] as number, bias, storing),
  ];
  const storing = (isTransposed: boolean | undefined): Storing =>
    isHub && isTransposed === true ? { storedAs: 'transposed' } : {};
  return {
    isHub,
    vector: (names, size, storedAs) => [
      {
        name: `${names[0]}.weight`,
        storedName: `${storedName(names)}.weight`,
        shape: [size],
        ...(isHub && storedAs !== undefined ? { storedAs } : {}),
      },
    ],
    matrix: (names, shape, bias, isTransposed) =>
      linear(names[0], storedName(names), shape, bias, storing(isTransposed)),
    norm: (names, size, bias) => linear(names[0], storedName(names), [size], bias),
    bias: (names, size) => ({ name: `${names[0]}.bias`, storedName: `${storedName(names)}.bias`, shape: [size] }),
    fused({ fused, parts, numInputs, bias, isTransposedInHub, isSplit, storedRowOf }) {
      const stored = storedName(fused);
      const areSeparate = isSplit ?? !store.tensors.has(`${stored}.weight`);
      const total = parts.reduce((sum, [, , numOutputs]) => sum + numOutputs, 0);
      let end = 0;
      return parts.flatMap(([own, hub, numOutputs]) => {
        const begin = end;
        end += numOutputs;
        const how: Storing = {
          ...storing(isTransposedInHub),
          ...(areSeparate ? {} : { rows: { begin, total, ...(storedRowOf === undefined ? {} : { storedRowOf }) } }),
          ...(storedRowOf === undefined ? {} : { order: { fusedRowOf: (row) => storedRowOf(begin + row) } }),
        };
        return linear(own, areSeparate ? storedName([own, hub]) : stored, [numOutputs, numInputs], bias, how);
      });
    },
  };
}

/** Differences between architectures of the standard decoder. */
export interface UsualTensors {
  readonly attentionBias?: Bias;
  /** Bias of the output projection. Default: as for the others. */
  readonly outputBias?: Bias;
  readonly ffnBias?: Bias;
  /** Module of the dense FFN within a layer of a Hugging Face checkpoint. Default: `mlp`. */
  readonly ffnModule?: string;
  /** Hugging Face checkpoints store `w - 1` as norm weights. */
  readonly normsLackOne?: boolean;
  /** Bias of norms. */
  readonly normBias?: Bias;
}

/** Embedding, output norm and output matrix under their standard names. */
export function* outerTensors(file: ModelFile, config: DecoderConfig, usual: UsualTensors): Generator<WeightRequest> {
  const { vocabSize, hiddenDim, isTied } = config;
  const names = tensorNames(file);
  yield* names.matrix(['token_embd', 'model.embed_tokens'], [vocabSize, hiddenDim], 'none');
  yield* usualNorm(file, ['output_norm', 'model.norm'], hiddenDim, usual);
  if (!isTied) yield* names.matrix(['output', 'lm_head'], [vocabSize, hiddenDim], 'none');
}

/** The attention matrices of a layer under their standard names, fused or not. */
export function attentionTensors(
  file: ModelFile,
  { hiddenDim, numHeads, numKvHeads, headDim }: DecoderConfig,
  layer: number,
  { attentionBias = 'none', outputBias = attentionBias }: UsualTensors,
): WeightRequest[] {
  const names = tensorNames(file);
  const [own, hub] = [`blk.${layer}`, `model.layers.${layer}.self_attn`];
  return [
    ...names.fused({
      fused: [`${own}.attn_qkv`, `${hub}.qkv_proj`],
      parts: [
        [`${own}.attn_q`, `${hub}.q_proj`, numHeads * headDim],
        [`${own}.attn_k`, `${hub}.k_proj`, numKvHeads * headDim],
        [`${own}.attn_v`, `${hub}.v_proj`, numKvHeads * headDim],
      ],
      numInputs: hiddenDim,
      bias: attentionBias,
    }),
    ...names.matrix([`${own}.attn_output`, `${hub}.o_proj`], [hiddenDim, numHeads * headDim], outputBias),
  ];
}

/** The matrices of a GLU FFN under their standard names. */
export function gatedFfnTensors(
  file: ModelFile,
  { hiddenDim, ffnDim }: DecoderConfig,
  layer: number,
  { ffnBias = 'none', ffnModule = 'mlp' }: UsualTensors,
): WeightRequest[] {
  const names = tensorNames(file);
  const [own, hub] = [`blk.${layer}`, `model.layers.${layer}.${ffnModule}`];
  return [
    ...names.matrix([`${own}.ffn_gate`, `${hub}.gate_proj`], [ffnDim, hiddenDim], ffnBias),
    ...names.matrix([`${own}.ffn_up`, `${hub}.up_proj`], [ffnDim, hiddenDim], ffnBias),
    ...names.matrix([`${own}.ffn_down`, `${hub}.down_proj`], [hiddenDim, ffnDim], ffnBias),
  ];
}

/** The matrices of an FFN without a gate. @param hub names of the two within a Hugging Face layer */
export function plainFfnTensors(
  file: ModelFile,
  { hiddenDim, ffnDim }: DecoderConfig,
  layer: number,
  [hubUp, hubDown]: readonly [up: string, down: string],
  { ffnBias = 'none' }: UsualTensors,
): WeightRequest[] {
  const names = tensorNames(file);
  const [own, hub] = [`blk.${layer}`, `model.layers.${layer}`];
  return [
    ...names.matrix([`${own}.ffn_up`, `${hub}.${hubUp}`], [ffnDim, hiddenDim], ffnBias),
    ...names.matrix([`${own}.ffn_down`, `${hub}.${hubDown}`], [hiddenDim, ffnDim], ffnBias),
  ];
}

/** The per-head norms of q and k, whose weights are shared by all heads. */
export function headNormTensors(
  file: ModelFile,
  { headDim }: DecoderConfig,
  layer: number,
  usual: UsualTensors,
  hubName = 'norm',
): WeightRequest[] {
  return ['q', 'k'].flatMap((which) =>
    usualNorm(
      file,
      [`blk.${layer}.attn_${which}_norm`, `model.layers.${layer}.self_attn.${which}_${hubName}`],
      headDim,
      usual,
    ),
  );
}

/** A norm with the bias and storage of the architecture. */
export function usualNorm(
  file: ModelFile,
  names: Names,
  size: number,
  { normsLackOne = false, normBias = 'none' }: UsualTensors,
): WeightRequest[] {
  const of = tensorNames(file);
  return normsLackOne ? of.vector(names, size, 'minus-one') : of.norm(names, size, normBias);
}

/** The norms before attention and FFN under their standard names. */
export function preNormTensors(
  file: ModelFile,
  { hiddenDim }: DecoderConfig,
  layer: number,
  usual: UsualTensors,
): WeightRequest[] {
  const [own, hub] = [`blk.${layer}`, `model.layers.${layer}`];
  return [
    ...usualNorm(file, [`${own}.attn_norm`, `${hub}.input_layernorm`], hiddenDim, usual),
    ...usualNorm(file, [`${own}.ffn_norm`, `${hub}.post_attention_layernorm`], hiddenDim, usual),
  ];
}

/**
 * All tensors of a decoder of pre-norm blocks.
 * @param ffnTensors tensors of the FFN of a layer; default: those of a GLU FFN
 */
export function* usualTensors(
  file: ModelFile,
  config: DecoderConfig,
  usual: UsualTensors,
  ffnTensors = (layer: number): Iterable<WeightRequest> => gatedFfnTensors(file, config, layer, usual),
): Generator<WeightRequest> {
  yield* outerTensors(file, config, usual);
  for (let layer = 0; layer < config.numLayers; layer++) {
    yield* preNormTensors(file, config, layer, usual);
    yield* attentionTensors(file, config, layer, usual);
    yield* ffnTensors(layer);
  }
}

/** A bias that is required if config.json declares it, else optional. */
export function settingBias({ format, fields }: ModelFile, setting: string): Bias {
  return format === 'safetensors' && fields.boolean(setting, false) ? 'required' : 'optional';
}

/** Whether a tensor is redundant: derived from the settings, a copy of the embedding table, or never read. */
export function isDerivedTensor(name: string, config: DecoderConfig): boolean {
  return (
    name === 'rope_freqs.weight' ||
    /\.(rotary_emb\.inv_freq|attn_rot_embd(\.weight)?)$/.test(name) ||
    (config.isTied && name === 'lm_head.weight') ||
    isUnusedKey(name, config)
  );
}

const keyName =
  /^(?:blk|(?:model\.|language_model\.)*layers)\.(\d+)\.(?:self_attn\.[kv]_(?:proj|norm)|attn_(?:k|v|k_norm))(?:\.|$)/;

/** Tensors of keys and values of layers that attend to those of another: checkpoints and adapters have them, too. */
export function isUnusedKey(name: string, config: Pick<DecoderConfig, 'kvLayers'>): boolean {
  const layer = config.kvLayers && keyName.exec(name)?.[1];
  return layer !== undefined && kvLayerOf(config, Number(layer)) !== Number(layer);
}

/** Whether a tensor belongs to the multi-token prediction layers, which follow those of the model. */
export function isPredictorTensor(name: string, { numLayers }: DecoderConfig): boolean {
  const layer = /^(?:blk|model\.layers)\.(\d+)\./.exec(name)?.[1];
  return name.startsWith('mtp.') || (layer !== undefined && Number(layer) >= numLayers);
}

/** Architectures whose GGUF files fold the factors of config.json into the weights. */
export const factorsInGguf: readonly string[] = ['falcon-h1'];
