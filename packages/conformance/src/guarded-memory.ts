/** Tensors inside larger buffers with guard bands on both sides, and canary tensors around outputs in the arena. */
import type { Backend, BufferHandle, ProgramBuilder, ProgramTensor } from '@winnow/ops';
import { dtypeInfo, sizeOf, type DType } from '@winnow/tensor';
import { product } from './values.js';

/** Every byte of a guard band. As f32, f16, bf16 or a scale it is NaN, as i32 it is -1. */
export const guardByte = 0xff;

/** A buffer with its contents before the run. */
export interface GuardedBuffer {
  readonly name: string;
  readonly usage: 'weights' | 'kv';
  readonly initial: Uint8Array;
  /** The range of the tensor between the guards, `[begin, end)`. */
  readonly begin: number;
  readonly end: number;
}

/** What the buffer of an input is for. */
export function usageOf(name: string): 'weights' | 'kv' {
  return name === 'keys' || name === 'values' || name === 'slotPositions' ? 'kv' : 'weights';
}

/** Declares a tensor as rows in the middle of a larger external buffer. */
export function declareGuarded(
  b: ProgramBuilder,
  name: string,
  usage: 'weights' | 'kv',
  tensor: { readonly dtype: DType; readonly shape: readonly number[]; readonly bytes: Uint8Array },
  numGuardBlocks: number,
): { tensor: ProgramTensor; buffer: GuardedBuffer } {
  const { dtype, shape, bytes } = tensor;
  const { blockSize } = dtypeInfo(dtype);
  const numBlocks = product(shape) / blockSize;
  const all = b.external(name, usage, dtype, [numBlocks + 2 * numGuardBlocks, blockSize]);
  const begin = sizeOf(dtype, numGuardBlocks * blockSize);
  const initial = new Uint8Array(bytes.length + 2 * begin).fill(guardByte);
  initial.set(bytes, begin);
  return {
    tensor: b.reshape(b.rows(all, numGuardBlocks, numGuardBlocks + numBlocks), shape),
    buffer: { name, usage, initial, begin, end: begin + bytes.length },
  };
}

/** Allocates and fills every buffer. */
export async function allocateGuarded(
  backend: Backend,
  buffers: readonly GuardedBuffer[],
): Promise<Map<string, BufferHandle>> {
  const handles = new Map<string, BufferHandle>();
  for (const { name, usage, initial } of buffers) {
    const handle = backend.allocate({ sizeBytes: initial.length, usage, label: name });
    handles.set(name, handle);
    await backend.write(handle, 0, initial);
  }
  return handles;
}

/**
 * Compares a whole buffer with its expected contents: unchanged guards, and between them `content` or the initial
 * bytes.
 */
export async function checkGuarded(
  backend: Backend,
  handle: BufferHandle,
  { name, initial, begin, end }: GuardedBuffer,
  content: Uint8Array = initial.subarray(begin, end),
): Promise<string[]> {
  const found = new Uint8Array(initial.length);
  await backend.read(handle, 0, found);
  const wanted = initial.slice();
  wanted.set(content, begin);
  const at = firstDifference(found, wanted);
  if (at === undefined) return [];
  const where = at < begin || at >= end ? 'guard band' : 'content';
  return [`${name}: ${where} changed, byte ${at - begin} is ${found[at]} instead of ${wanted[at]}`];
}

/** Index of the first byte that differs, of two arrays of one length at the start of their memory. */
function firstDifference(a: Uint8Array, b: Uint8Array): number | undefined {
  const numWords = a.length >> 2;
  const [wordsOfA, wordsOfB] = [new Int32Array(a.buffer, 0, numWords), new Int32Array(b.buffer, 0, numWords)];
  let word = 0;
  while (word < numWords && wordsOfA[word] === wordsOfB[word]) word++;
  for (let at = 4 * word; at < a.length; at++) if (a[at] !== b[at]) return at;
  return undefined;
}

/** Floats of a canary: no equal neighbors, and no values that a kernel would produce. */
export function canaryValues(length: number): Float32Array {
  const values = new Float32Array(length);
  for (let i = 0; i < length; i++) values[i] = -123456 - (i % 7919);
  return values;
}
