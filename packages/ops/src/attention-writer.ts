/** The seam between architectures and attention policies: who asks for a layer's attention, and who writes its records. */
import type { KvView } from './kv-view.js';
import type { ProgramBuilder, ProgramTensor } from './program-builder.js';

/** One layer's attention as its architecture asks for it. The step's keys and values are in the cache already. */
export interface AttentionSite {
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
  /** `[B]`: the row that a sequence goes on from, negative for a fresh one; `stateTo` is the row that it leaves. */
  readonly stateFrom: ProgramTensor;
  readonly stateTo: ProgramTensor;
}

/** Adds the records of one layer's attention to a program and returns `y` `[T, N, D]`. */
export type AttentionWriter = (b: ProgramBuilder, site: AttentionSite) => ProgramTensor;

/** Exact attention over everything the query may see. */
export const writeDenseAttention: AttentionWriter = (b, { q, positions, sequences, kv, scale, window, softCap }) =>
  b.activation('attention', { q, positions, sequences, ...kv }, { scale, window, softCap });
