/** The seam between architectures and sparse inference: who asks for a layer's feed-forward block, and who writes its records. */
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
 * One layer's feed-forward block as its architecture asks for it: `down(act(gate x) * up x)`, or `down(act(up x))` where there
 * is no gate. The methods declare the weights that they return: what a writer does not ask for need not be loaded.
 */
export interface FeedForwardSite {
  readonly layer: number;
  /** `[T, E]`, normed. */
  readonly x: ProgramTensor;
  readonly activation: ActivationKind;
  /** E. */
  readonly hiddenDim: number;
  /** F: the number of neurons. */
  readonly ffnDim: number;
  /** `[F, E]`; not there in blocks of two matrices. */
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
   * `gate`, `up` and `downRows` side by side for each neuron, `[F, 3, E]`: the external weight `<name of down>.neurons`. Not there
   * where they have different types or biases, or are not all in memory.
   */
  neurons?(): ProgramTensor;
  /** `[E]`. */
  downBias?(): ProgramTensor;
  /** `gate` and `up` input by input, `[E, F]`: the external weights `<name>.columns`. For skipping inputs. */
  gateColumns?(): ProgramTensor;
  upColumns?(): ProgramTensor;
  /** The records as they are without a writer. */
  writeDense(): ProgramTensor;
  /**
   * The passes in which active neurons (`ids` `[F]`, `count` `[1]`, both i32) are computed. A writer that skips neurons asks
   * for them once, appends the records of a pass before it asks for the next, which may begin with a boundary, and lets the
   * sums of a pass go on from those before (`sparse-combine` with `previous`). The matrices have a row per place then: `[S, E]`. Without this method there is one pass, all in memory.
   */
  passes?(ids: ProgramTensor, count: ProgramTensor): Iterable<NeuronPass>;
}

/** Adds the records of one layer's feed-forward block to a program and returns `y` `[T, E]`. */
export type FeedForwardWriter = (b: ProgramBuilder, site: FeedForwardSite) => ProgramTensor;
