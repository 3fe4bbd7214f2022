/** Validates a saved sequence and creates its state. */
import { ArgumentError } from '@winnow/tensor';
import { countFilled, createSequenceState, type SequenceState, type DetachedPage } from './sequence-state.js';

/** A saved sequence, with the fields of its `SequenceView`. */
export interface SequenceContents {
  readonly tokens: ArrayLike<number>;
  /** Position of each logical slot, -1 for empty ones; at least one in every block. */
  readonly positions: ArrayLike<number>;
  readonly salt?: string;
  /** Whether its blocks may be shared, if they hold every position in order. Default true. */
  readonly isShareable?: boolean;
  /** Pages that are already stored, under unused ids. */
  readonly detachedPages?: readonly DetachedPage[];
}

/**
 * The state of a restored sequence, its block table still empty.
 * @throws {ArgumentError} for duplicate positions, positions without a token, and empty blocks
 */
export function restoreState(id: number, contents: SequenceContents, blockSize: number): SequenceState {
  const { tokens, positions, salt = '', isShareable = true, detachedPages = [] } = contents;
  const state = createSequenceState(id, salt);
  const seen = new Uint8Array(tokens.length);
  const hold = (position: number): void => {
    if (!Number.isInteger(position) || position < 0 || position >= tokens.length) {
      refuse(`positions from 0 to ${tokens.length - 1}, or -1`, position);
    }
    if (seen[position] === 1) refuse('every position once', `${position} twice`);
    seen[position] = 1;
  };
  for (let i = 0; i < tokens.length; i++) {
    if ((tokens[i] | 0) !== tokens[i]) {
      throw new ArgumentError({ argument: 'tokens', expected: '32-bit integers', actual: `${tokens[i]} at ${i}` });
    }
    state.tokens.push(tokens[i]);
  }
  let previous = -1;
  let isWhole = positions.length === tokens.length;
  for (let slot = 0; slot < positions.length; slot++) {
    const position = positions[slot];
    state.positions.push(position);
    if (position !== slot) isWhole = false;
    if (position === -1) {
      state.holes.push(slot);
      continue;
    }
    hold(position);
    if (position < previous) state.isSorted = false;
    previous = position;
  }
  for (let begin = 0; begin < positions.length; begin += blockSize) {
    const end = Math.min(begin + blockSize, positions.length);
    if (countFilled(state.positions.view().subarray(begin, end)) > 0) continue;
    refuse('a position in every block', `none in the slots ${begin} to ${end - 1}`);
  }
  for (const { pageId, positions: pagePositions } of detachedPages) {
    for (const position of pagePositions) if (position !== -1) hold(position);
    if (pagePositions.length !== blockSize || countFilled(pagePositions) === 0) {
      refuse(`pages of ${blockSize} slots with a position`, `another one, page ${pageId}`);
    }
    state.detached.push({ pageId, positions: pagePositions.slice() });
  }
  state.numCommitted = tokens.length;
  state.isShareable = isShareable && isWhole;
  return state;
}

function refuse(expected: string, actual: unknown): never {
  throw new ArgumentError({ argument: 'positions', expected, actual: String(actual) });
}
