/** The configuration of a decoder-only model, independent of its file format. */
import type { ActivationKind, RopeScaling } from '@winnow/ops';

/** Rotary position embedding of a model. */
export interface RopeConfig {
  readonly layout: 'neighbors' | 'halves';
  readonly base: number;
  /** Number of rotated dimensions per head. */
  readonly rotaryDim: number;
  readonly scaling?: RopeScaling;
  /** The scaling for sequences longer than this (LongRoPE). */
  readonly beyond?: { readonly contextLength: number; readonly scaling: RopeScaling };
  /** The base grows with the length of sequences longer than this (dynamic NTK). */
  readonly dynamic?: { readonly contextLength: number; readonly factor: number };
  /** M-RoPE: the coordinate by which each pair is rotated, 0 (time), 1 (row) or 2 (column). Default: the position rotates all pairs. */
  readonly coordinates?: readonly number[];
}

/** Groups of experts. */
export interface ExpertGroups {
  readonly numGroups: number;
  readonly numChosen: number;
  /** Whether a group is ranked by its best expert or by the sum of its best two. */
  readonly score: 'best' | 'best-two';
}

/** The mixture of experts that replaces the FFN of some layers. */
export interface ExpertConfig {
  readonly numExperts: number;
  /** Number of experts selected per token. */
  readonly numChosen: number;
  readonly ffnDim: number;
  /** FFN dimension of the shared expert, or of all shared experts together; 0 without one. */
  readonly sharedFfnDim: number;
  /** Number of shared experts without gates, which are stored as one. Default: the shared expert has a gate. */
  readonly numShared?: number;
  readonly score: 'softmax' | 'sigmoid';
  /** Groups of consecutive experts; experts are selected from the best groups only, as in the op `expert-route`. Default: none. */
  readonly groups?: ExpertGroups;
  /** Whether the weights of the selected experts are normalized to sum to 1. */
  readonly normalize: boolean;
  /** Factor applied to the weights. */
  readonly scale: number;
  /** The routing weight of the only selected expert scales its input. Default: it scales the result. */
  readonly scalesInput?: true;
  /** The clamped GLU of gpt-oss, as in the op `glu`. Default: none. */
  readonly clamp?: { readonly limit: number; readonly alpha: number };
  /** Whether each layer has experts. */
  readonly layers: readonly boolean[];
}

/** Sizes of the KV heads of a layer. */
export interface KvHeads {
  readonly numKvHeads: number;
  readonly headDim: number;
}

/** Sizes and settings of a decoder. Dims in elements, lengths in tokens; models without attention or FFNs have 0 for their sizes. */
export interface DecoderConfig {
  readonly architecture: string;
  readonly vocabSize: number;
  readonly hiddenDim: number;
  readonly numLayers: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  /** KV heads of layers without the sliding window, whose queries have heads of that size, too. Default: as in the other layers. */
  readonly globalHeads?: KvHeads;
  /** For each layer the one whose keys and values it attends to: itself or an earlier one. Default: all attend to their own. */
  readonly kvLayers?: readonly number[];
  readonly ffnDim: number;
  /** FFN dimension of each layer, where they are different. */
  readonly ffnDims?: readonly number[];
  /** The context length that the model was trained for. */
  readonly contextLength: number;
  readonly normEps: number;
  readonly activation: ActivationKind;
  /** Absent for models with learned positions. */
  readonly rope?: RopeConfig;
  /**
   * GGUF files of the architecture have other rotary pairs than its checkpoints: neighbors instead of halves, by permuted
   * rows of q and k. Default: both formats have the same.
   */
  readonly neighborsInGguf?: true;
  /** Number of keys visible to a query, itself included; 0 for all. */
  readonly slidingWindow: number;
  /** Which layers use the sliding window. Default: all. */
  readonly windowedLayers?: readonly boolean[];
  /** Chunked attention: a query sees the keys of its own chunk of `slidingWindow` positions. Requires `windowedLayers`. */
  readonly isChunked?: true;
  /** Number of learned positions, which the context cannot exceed. */
  readonly maxPositions?: number;
  /** Whether the output matrix is the embedding table (tied embeddings). */
  readonly isTied: boolean;
  /** Bidirectional attention: the model embeds and does not generate. */
  readonly isEncoder?: true;
  readonly experts?: ExpertConfig;
  /** The token that stands for a row of an image, in models that take images. */
  readonly imageTokenId?: number;
  /** Values per row of an image: its embedding, and the values that the first layers add (DeepStack). Default: `hiddenDim`. */
  readonly imageDim?: number;
  /** Recurrent layers, which carry a state instead of a KV cache. Default: none. */
  readonly recurrentLayers?: readonly boolean[];
}

/** A decoder with rotary positions. */
export type RotaryDecoderConfig = DecoderConfig & { readonly rope: RopeConfig };

/** Number of keys visible to a query of a layer; 0 for all. */
export function windowOf({ slidingWindow, windowedLayers }: DecoderConfig, layer: number): number {
  return windowedLayers?.[layer] === false ? 0 : slidingWindow;
}

/** The KV heads of a layer. */
export function kvHeadsOf(config: HeadSizes, layer: number): KvHeads {
  const { globalHeads, windowedLayers, numKvHeads, headDim } = config;
  return globalHeads !== undefined && windowedLayers?.[layer] === false ? globalHeads : { numKvHeads, headDim };
}

/** What the sizes of KV heads depend on. */
export type HeadSizes = Pick<DecoderConfig, 'globalHeads' | 'windowedLayers' | 'numKvHeads' | 'headDim'>;

/** The layer whose keys and values a layer attends to. */
export function kvLayerOf({ kvLayers }: Pick<DecoderConfig, 'kvLayers'>, layer: number): number {
  return kvLayers?.[layer] ?? layer;
}

/** The sizes of heads that occur in a model. */
export function headDimsOf({
  globalHeads,
  headDim,
}: Pick<DecoderConfig, 'globalHeads' | 'headDim'>): readonly number[] {
  return globalHeads === undefined || globalHeads.headDim === headDim ? [headDim] : [headDim, globalHeads.headDim];
}

/** The FFN dimension of a layer. */
export function ffnDimOf({ ffnDims, ffnDim }: Pick<DecoderConfig, 'ffnDims' | 'ffnDim'>, layer: number): number {
  return ffnDims?.[layer] ?? ffnDim;
}
