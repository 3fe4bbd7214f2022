/** A whole program with its steps and expected results. */
import type { Program } from '@winnow/ops';
import type { Arithmetic } from '../arithmetic.js';
import type { Expected } from '../kernel-case.js';

/** One call of `run`. */
export interface ProgramStep {
  /** Values of scalar slots and symbols. */
  readonly scalars: Readonly<Record<string, readonly number[]>>;
  /** Bytes that the host writes into external buffers at a boundary. */
  readonly boundaries?: Readonly<Record<string, Readonly<Record<string, Uint8Array>>>>;
  /** Outputs after the step. */
  readonly expected: Readonly<Record<string, Expected>>;
}

export interface ProgramCase {
  readonly name: string;
  create(arithmetic: Arithmetic): {
    readonly program: Program;
    /** Contents of the external buffers by name. */
    readonly contents: ReadonlyMap<string, Uint8Array>;
    readonly steps: readonly ProgramStep[];
  };
}
