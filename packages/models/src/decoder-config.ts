/** What a decoder-only model is, independent of the file it came from. */
import type { ActivationKind, RopeScaling } from '@winnow/ops';

/** Rotary position embedding of a model. */
export interface RopeConfig {
  readonly layout: 'neighbors' | 'halves';
  readonly base: number;
  /** Dims of each head that are rotated. */
  readonly rotaryDim: number;
  readonly scaling?: RopeScaling;
  /** Another scaling for contexts longer than this: LongRoPE. */
  readonly beyond?: { readonly contextLength: number; readonly scaling: RopeScaling };
}

/** The mixture of experts that stands for the FFN of some layers. */
export interface ExpertConfig {
  readonly numExperts: number;
  /** Experts that compute a token. */
  readonly numChosen: number;
  readonly ffnDim: number;
  /** Size of the expert that computes every token; 0 without. */
  readonly sharedFfnDim: number;
  readonly score: 'softmax' | 'sigmoid';
  /** Whether the weights of the chosen experts are made to sum to 1. */
  readonly normalize: boolean;
  /** What the weights are multiplied with. */
  readonly scale: number;
  /** Whether each layer has experts. */
  readonly layers: readonly boolean[];
}

/** Sizes and settings of a decoder. Dims in elements, lengths in tokens. */
export interface DecoderConfig {
  readonly architecture: string;
  readonly vocabSize: number;
  readonly hiddenDim: number;
  readonly numLayers: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly ffnDim: number;
  /** The context that the model was made for. */
  readonly contextLength: number;
  readonly normEps: number;
  readonly activation: ActivationKind;
  /** Absent for models with learned positions. */
  readonly rope?: RopeConfig;
  /** Keys that a query sees, itself included; 0 for all. */
  readonly slidingWindow: number;
  /** Which layers have the window. Default: all. */
  readonly windowedLayers?: readonly boolean[];
  /** Positions that a model with learned positions knows; it cannot go beyond. */
  readonly maxPositions?: number;
  /** The output matrix is the embedding table. */
  readonly isTied: boolean;
  /** Tokens see the whole text: the model embeds and does not generate. */
  readonly isEncoder?: true;
  readonly experts?: ExpertConfig;
  /** Layers that carry a state instead of attending. Default: none. */
  readonly recurrentLayers?: readonly boolean[];
}

/** A decoder with rotary positions. */
export type RotaryDecoderConfig = DecoderConfig & { readonly rope: RopeConfig };

/** Keys that a query of a layer sees; 0 for all. */
export function windowOf({ slidingWindow, windowedLayers }: DecoderConfig, layer: number): number {
  return windowedLayers?.[layer] === false ? 0 : slidingWindow;
}
