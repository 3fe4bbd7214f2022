/** The contract between architectures, which request the attention of a layer, and policies, which lower it to ops. */
import type { ProgramBuilder, ProgramTensor } from '../program/program-builder.js';
import type { KvView } from './kv-view.js';

/** The attention of one layer as its architecture requests it. The step's keys and values are already in the cache. */
export interface LayerAttention {
  readonly layer: number;
  /** The layer whose keys and values these are. Default: the layer itself. */
  readonly kvLayer?: number;
  /** `[T, N, H]`, after RoPE, not scaled. */
  readonly q: ProgramTensor;
  /** This step's keys `[T, K, H]`, as stored, after RoPE. */
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
  /**
   * Number of keys that a query may attend to, including its own position; 0 for all. Part of the model; policies may
   * only narrow it.
   */
  readonly window: number;
  /** The window is a chunk, as the attribute `chunked` of the op `attention`. Default: it slides. Dense attention only. */
  readonly chunked?: boolean;
  /** 0: off. Otherwise logits `s` become `cap * tanh(s / cap)`. */
  readonly softCap: number;
  /** Learned sinks `[N]`: a logit per query head, as in the op `attention`. Not all policies support them. */
  readonly sinkLogits?: ProgramTensor;
  /** Biases of the logits by relative position `[R, N]`, as in the op `attention`. Only dense attention supports them. */
  readonly positionBias?: ProgramTensor;
  /**
   * The same query rotated for other positions `[T]`, for policies that remap positions; the query itself in models
   * without positional rotation.
   */
  rotateQuery(positions: ProgramTensor): ProgramTensor;
  /** For policies with per-sequence state; declares that the program has such states. */
  states?(): SequenceStates;
}

/** The states of sequences: external tensors `state.<layer>.<what>` of usage `kv`, whose first axis is `numStates`. */
export interface SequenceStates {
  readonly numStates: number;
  /** `[B]`: the row that a sequence continues from, negative for a new one; `stateTo` is the row that it writes. */
  readonly stateFrom: ProgramTensor;
  readonly stateTo: ProgramTensor;
}

/** Appends the ops of one layer's attention to a program and returns `y` `[T, N, D]`. */
export type AttentionLowering = (b: ProgramBuilder, request: LayerAttention) => ProgramTensor;

/** Exact attention to all visible keys. */
export const lowerDenseAttention: AttentionLowering = (b, request) => {
  const { q, positions, sequences, kv, scale, window, chunked = false, softCap, sinkLogits, positionBias } = request;
  const inputs = { q, positions, sequences, ...kv, sinkLogits, positionBias };
  return b.activation('attention', inputs, { scale, window, softCap, chunked });
};
