/** What the supervisor and its workers exchange. */

export interface WorkerSetup {
  /** URL of the target's file. */
  readonly module: string;
  readonly corpus: readonly Uint8Array[];
  readonly seed: number;
  readonly firstIndex: number;
  readonly maxInputs: number;
  readonly maxMs: number;
  /** The input that is running, readable while the worker hangs. */
  readonly state: SharedArrayBuffer;
}

export interface Finding {
  readonly index: number;
  readonly input: Uint8Array;
  readonly reason: string;
}

export type Report =
  | ({ readonly kind: 'finding' } & Finding)
  /** An input whose outcome is new. */
  | { readonly kind: 'outcome'; readonly input: Uint8Array }
  | { readonly kind: 'done'; readonly numInputs: number; readonly numOutcomes: number };

const headerBytes = 8;
const maxInputBytes = 1 << 20;

/** Index + 1 of the input, its length, its bytes. */
export function createState(): SharedArrayBuffer {
  return new SharedArrayBuffer(headerBytes + maxInputBytes);
}

export function setInput(state: SharedArrayBuffer, index: number, input: Uint8Array): void {
  const kept = input.subarray(0, maxInputBytes);
  new Uint8Array(state, headerBytes).set(kept);
  const words = new Int32Array(state, 0, 2);
  Atomics.store(words, 1, kept.length);
  Atomics.store(words, 0, index + 1);
}

/** Undefined before the first input. */
export function currentInput(
  state: SharedArrayBuffer,
): { readonly index: number; readonly input: Uint8Array } | undefined {
  const words = new Int32Array(state, 0, 2);
  const index = Atomics.load(words, 0) - 1;
  if (index < 0) return undefined;
  return { index, input: new Uint8Array(state, headerBytes, Atomics.load(words, 1)).slice() };
}
