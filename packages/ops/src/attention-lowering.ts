/** The contract between architectures, which ask for the attention of a layer, and policies, which lower it to ops. */
import type { KvView } from './kv-view.js';
import type { ProgramBuilder, ProgramTensor } from './program-builder.js';

/** The attention of one layer as its architecture asks for it. The step's keys and values are in the cache already. */
export interface LayerAttention {
  readonly layer: number;
  /** `[T, N, H]`, rotated, not scaled. */
  readonly q: ProgramTensor;
  /** This step's keys `[T, K, H]`, as stored: rotated at their positions. */
  readonly k: ProgramTensor;
  /** This step's values `[T, K, D]`. */
  readonly v: ProgramTensor;
  /** `[T]`, as are `sequences` and `slots` (physical, where the step's keys went). */
  readonly positions: ProgramTensor;
  readonly sequences: ProgramTensor;
  readonly slots: ProgramTensor;
  readonly kv: KvView;
  /** Factor of `q . k`. */
  readonly scale: number;
  /** Keys that a query may see, its own position included; 0 for all. A part of the model, which no policy widens. */
  readonly window: number;
  /** 0: none. Otherwise logits `s` become `cap * tanh(s / cap)`. */
  readonly softCap: number;
  /**
   * The same query rotated as if it stood at other positions `[T]`, for policies that remap positions; the query itself
   * in models whose attention does not know positions.
   */
  rotateQuery(positions: ProgramTensor): ProgramTensor;
  /** For policies that keep a state per sequence; declares that the program has such states. */
  states?(): SequenceStates;
}

/** The states of sequences: external tensors `state.<layer>.<what>` of usage `kv`, whose first axis is `numStates`. */
export interface SequenceStates {
  readonly numStates: number;
  /** `[B]`: the row that a sequence continues from, negative for a new one; `stateTo` is the row that it leaves. */
  readonly stateFrom: ProgramTensor;
  readonly stateTo: ProgramTensor;
}

/** Appends the ops of one layer's attention to a program and returns `y` `[T, N, D]`. */
export type AttentionLowering = (b: ProgramBuilder, request: LayerAttention) => ProgramTensor;

/** Exact attention to everything that the query may see. */
export const lowerDenseAttention: AttentionLowering = (b, { q, positions, sequences, kv, scale, window, softCap }) =>
  b.activation('attention', { q, positions, sequences, ...kv }, { scale, window, softCap });
