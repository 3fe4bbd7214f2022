/**
 * The contract between architectures, which request the FFN of a layer, and sparse inference, which lowers it to ops.
 */
import type { ActivationKind } from '../numerics/activation-functions.js';
import type { ProgramBuilder, ProgramTensor } from '../program/program-builder.js';

/** Active neurons of one pass, as inputs of `sparse-matmul` and `sparse-combine`. */
export interface NeuronPass {
  /** `[F]` i32: the neurons, for biases and for columns of scores. */
  readonly ids: ProgramTensor;
  /** `[F]` i32: their rows in the matrices; equal to the ids if all neurons are in memory. */
  readonly rows: ProgramTensor;
  /** `[1]` i32: their number. */
  readonly count: ProgramTensor;
}

/**
 * One layer's FFN as its architecture requests it: `down(act(gate x) * up x)`, or `down(act(up x))` without a gate. The
 * methods declare the weights that they return; weights that are not requested are not loaded.
 */
export interface LayerFeedForward {
  readonly layer: number;
  /** `[T, E]`, normalized. */
  readonly x: ProgramTensor;
  readonly activation: ActivationKind;
  /** E. */
  readonly hiddenDim: number;
  /** F: the number of neurons. */
  readonly ffnDim: number;
  /** `[F, E]`; undefined in blocks of two matrices. */
  gate?(): ProgramTensor;
  /** `[F]`. */
  gateBias?(): ProgramTensor;
  /** `[F, E]`. */
  up(): ProgramTensor;
  /** `[F]`. */
  upBias?(): ProgramTensor;
  /** `[E, F]`. */
  down(): ProgramTensor;
  /** `down` transposed, `[F, E]`: the external weight `<name of down>.rows`. */
  downRows(): ProgramTensor;
  /**
   * `gate`, `up` and `downRows` interleaved by neuron, `[F, 3, E]`: the external weight `<name of
   * down>.neurons`. Undefined if they have different dtypes or biases, or are not all in memory.
   */
  neurons?(): ProgramTensor;
  /** `[E]`. */
  downBias?(): ProgramTensor;
  /** `gate` and `up` transposed, `[E, F]`: the external weights `<name>.columns`. For skipping inputs. */
  gateColumns?(): ProgramTensor;
  upColumns?(): ProgramTensor;
  /** The ops of the dense block. */
  lowerDense(): ProgramTensor;
  /**
   * The passes that compute active neurons (`ids` `[F]`, `count` `[1]`, both i32). A sparse lowering iterates them
   * once, appends the ops of a pass before it requests the next, which may begin with a boundary, and accumulates the
   * sums of passes (`sparse-combine` with `previous`). The matrices then have one row per slot: `[S, E]`. Without this
   * method there is a single pass, with all rows in memory.
   */
  passes?(ids: ProgramTensor, count: ProgramTensor): Iterable<NeuronPass>;
}

/** Appends the ops of one layer's feed-forward block to a program and returns `y` `[T, E]`. */
export type FeedForwardLowering = (b: ProgramBuilder, node: LayerFeedForward) => ProgramTensor;
