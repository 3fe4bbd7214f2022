/** A forward pass as data: op records over planned buffers, which a backend executes as a whole. */
import type { DType } from '@winnow/tensor';
import type { Dim } from '../spec/dims.js';
import type { AttributeValue } from '../spec/op-spec.js';
import type { ScalarLayout } from './scalars.js';

/** The usage of a buffer. Weights and kv outlive a program; the rest belongs to its executable. */
export type BufferUsage = 'weights' | 'kv' | 'activation' | 'scalars';

/** A buffer of a program. */
export interface ProgramBuffer {
  readonly name: string;
  readonly usage: BufferUsage;
  readonly sizeBytes: number;
}

/** A contiguous, row-major tensor inside a buffer. */
export interface TensorRef {
  readonly name: string;
  /** Index into `Program.buffers`. */
  readonly buffer: number;
  readonly byteOffset: number;
  readonly dtype: DType;
  readonly shape: readonly Dim[];
}

/** One op with its tensors. */
export interface OpRecord {
  readonly op: string;
  readonly inputs: Readonly<Record<string, TensorRef>>;
  readonly outputs: Readonly<Record<string, TensorRef>>;
  readonly attributes: Readonly<Record<string, AttributeValue>>;
  /** Index of the layer for profiles, or -1 outside of layers. */
  readonly layer: number;
}

/** Records `[begin, end)` that run without the host. After the segment the host handles `boundary`. */
export interface Segment {
  readonly begin: number;
  readonly end: number;
  readonly boundary: string | undefined;
}

/**
 * A compiled forward pass. Buffer 0 is the scalar block and buffer 1 the activation arena, in which tensors with
 * disjoint lifetimes share memory; all further buffers are weights and caches that `prepare` binds by name.
 */
export interface Program {
  readonly records: readonly OpRecord[];
  readonly buffers: readonly ProgramBuffer[];
  readonly symbols: ReadonlyMap<string, number>; // capacity per symbol
  readonly scalars: ScalarLayout;
  readonly segments: readonly Segment[];
  /** Tensors that the host may read after a run. */
  readonly outputs: ReadonlyMap<string, TensorRef>;
  /** Bytes of the activation arena and the scalar block: the memory of the program besides weights and caches. */
  readonly peakBytes: number;
}

export const scalarBufferIndex = 0;
export const arenaBufferIndex = 1;
