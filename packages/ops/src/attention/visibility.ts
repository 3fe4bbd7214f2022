/** Which keys are visible to a query, by position. Shared by all attention ops. */
import { ArgumentError, ShapeError } from '@winnow/tensor';
import type { Dim } from '../spec/dims.js';
import type { Attributes, AttributeSpec } from '../spec/op-spec.js';
import { checkBlockSize } from './kv-reader.js';

/** Attributes of every attention op. */
export const attentionAttributes: Readonly<Record<string, AttributeSpec>> = {
  /** Factor of `q . k`, usually `1 / sqrt(headDim)`. */
  scale: { kind: 'number' },
  /** A query attends only to keys at its own position and before. */
  causal: { kind: 'boolean', default: true },
  /**
   * 0: everything. Causal: keys less than `window` positions back, including the query's own position. Bidirectional:
   * keys at most `floor(window / 2)` positions away.
   */
  window: { kind: 'number', integer: true, default: 0 },
  /** 0: none. Otherwise logits `s` become `cap * tanh(s / cap)`. */
  softCap: { kind: 'number', default: 0 },
  /**
   * The window does not slide: it begins at the last multiple of its size up to the query's position, so that a query sees
   * the keys of its own chunk. Causal attention with a window only; `chunkedOps` support it.
   */
  chunked: { kind: 'boolean', default: false },
};

/** Ops that support `chunked`. */
const chunkedOps: readonly string[] = ['attention', 'attention-partial', 'attention-mass'];

/** The same rule as a function of positions; keys in empty slots (negative positions) are never visible. */
export function visibility(attributes: Attributes): (queryPosition: number, keyPosition: number) => boolean {
  const causal = attributes['causal'] as boolean;
  const window = attributes['window'] as number;
  const isChunked = attributes['chunked'] as boolean;
  const reach = window === 0 ? Infinity : causal ? window - 1 : Math.floor(window / 2);
  return (queryPosition, keyPosition) => {
    if (keyPosition < 0) return false;
    const distance = queryPosition - keyPosition;
    return distance <= (isChunked ? queryPosition % window : reach) && distance >= (causal ? 0 : -reach);
  };
}

/**
 * The keys among the visible ones that streaming attention reads, and whose pages `page-topk-attention` always reads:
 * the first `sinks` positions and the last `local`, including the query's own.
 */
export function sinksAndWindow({ sinks, local }: Attributes): (queryPosition: number, keyPosition: number) => boolean {
  return (queryPosition, keyPosition) =>
    keyPosition < (sinks as number) || queryPosition - keyPosition < (local as number);
}

/** Rules that shape contracts cannot express. @throws {ShapeError | ArgumentError} */
export function checkAttention(
  op: string,
  { q, keys }: Readonly<Record<string, readonly Dim[]>>,
  { window, softCap, causal, chunked }: Attributes,
): void {
  const [, numHeads] = q;
  const [, numKvHeads, blockSize] = keys;
  checkBlockSize(op, blockSize);
  if (Number(numHeads) % Number(numKvHeads) !== 0) {
    throw new ShapeError({
      op,
      rule: 'query heads',
      expected: `a multiple of ${numKvHeads} KV heads`,
      actual: String(numHeads),
    });
  }
  for (const [name, value] of Object.entries({ window, softCap })) {
    if (Number(value) < 0) {
      throw new ArgumentError({ argument: `${op}: ${name}`, expected: '0 or more', actual: String(value) });
    }
  }
  if (chunked !== true) return;
  const refuse = (expected: string, actual: string): never => {
    throw new ArgumentError({ argument: `${op}: chunked`, expected, actual });
  };
  if (!chunkedOps.includes(op)) refuse(`false, since only ${chunkedOps.join(', ')} support it`, 'true');
  if (causal !== true) refuse('causal attention', 'bidirectional attention');
  if (window === 0) refuse('a window, the size of a chunk', 'a window of 0');
}
