/**
 * The contract between architectures, which ask for the feed-forward block of a layer, and sparse inference, which
 * lowers it to ops.
 */
import type { ActivationKind } from './activation-functions.js';
import type { ProgramBuilder, ProgramTensor } from './program-builder.js';

/** Active neurons that are computed at once, in tensors for `sparse-matmul` and `sparse-combine`. */
export interface NeuronPass {
  /** `[F]` i32: the neurons, for biases and for columns of scores. */
  readonly ids: ProgramTensor;
  /** `[F]` i32: where their rows are in the matrices. The ids themselves when all neurons are in memory. */
  readonly rows: ProgramTensor;
  /** `[1]` i32: how many there are. */
  readonly count: ProgramTensor;
}

/**
 * One layer's feed-forward block as its architecture asks for it: `down(act(gate x) * up x)`, or `down(act(up x))`
 * where there is no gate. The methods declare the weights that they return: weights that nobody asks for need not be
 * loaded.
 */
export interface LayerFeedForward {
  readonly layer: number;
  /** `[T, E]`, normed. */
  readonly x: ProgramTensor;
  readonly activation: ActivationKind;
  /** E. */
  readonly hiddenDim: number;
  /** F: the number of neurons. */
  readonly ffnDim: number;
  /** `[F, E]`; missing in blocks of two matrices. */
  gate?(): ProgramTensor;
  /** `[F]`. */
  gateBias?(): ProgramTensor;
  /** `[F, E]`. */
  up(): ProgramTensor;
  /** `[F]`. */
  upBias?(): ProgramTensor;
  /** `[E, F]`. */
  down(): ProgramTensor;
  /** The same as `down` neuron by neuron, `[F, E]`: the external weight `<name of down>.rows`. */
  downRows(): ProgramTensor;
  /**
   * `gate`, `up` and `downRows` side by side for each neuron, `[F, 3, E]`: the external weight `<name of
   * down>.neurons`. Missing where they have different types or biases, or are not all in memory.
   */
  neurons?(): ProgramTensor;
  /** `[E]`. */
  downBias?(): ProgramTensor;
  /** `gate` and `up` input by input, `[E, F]`: the external weights `<name>.columns`. For skipping inputs. */
  gateColumns?(): ProgramTensor;
  upColumns?(): ProgramTensor;
  /** The ops of the dense block. */
  lowerDense(): ProgramTensor;
  /**
   * The passes in which active neurons (`ids` `[F]`, `count` `[1]`, both i32) are computed. A lowering that skips
   * neurons asks for them once, appends the ops of a pass before it asks for the next, which may begin with a boundary,
   * and adds the sums of a pass to those before (`sparse-combine` with `previous`). The matrices have a row per slot
   * then: `[S, E]`. Without this method there is one pass, with all rows in memory.
   */
  passes?(ids: ProgramTensor, count: ProgramTensor): Iterable<NeuronPass>;
}

/** Appends the ops of one layer's feed-forward block to a program and returns `y` `[T, E]`. */
export type FeedForwardLowering = (b: ProgramBuilder, node: LayerFeedForward) => ProgramTensor;
