/** The state of one sequence: tokens, block table, the position of each logical slot, holes, detached pages. */
import { invariant } from '@winnow/tensor';

import { IntList } from './int-list.js';

/** A page outside the pool that still belongs to the sequence: attention reads it from a lower tier. */
export interface DetachedPage {
  readonly pageId: number;
  /** Position of each of its `blockSize` slots, -1 for none. */
  readonly positions: Int32Array;
}

/** A read-only view of a sequence. Arrays are valid until the next call that changes the sequence. */
export interface SequenceView {
  readonly id: number;
  readonly salt: string;
  /** Tokens so far; also the position of the next one. */
  readonly numTokens: number;
  /** Leading tokens whose keys and values have been stored. */
  readonly numCommitted: number;
  /** Logical slots in use, empty ones included: the context length of kernels. */
  readonly numSlots: number;
  /** Positions that are neither in the pool nor in a detached page. */
  readonly numEvicted: number;
  /** Block table. */
  readonly blocks: readonly number[];
  readonly tokens: Int32Array;
  /** Position of each logical slot, -1 for empty ones. */
  readonly positions: Int32Array;
  readonly detachedPages: readonly DetachedPage[];
  /** Whether blocks that become full can be shared, since nothing was evicted. */
  readonly isShareable: boolean;
}

export interface SequenceState {
  readonly id: number;
  readonly salt: string;
  readonly tokens: IntList;
  numCommitted: number;
  blocks: number[];
  /** Position per logical slot. Its length is the number of slots in use. */
  readonly positions: IntList;
  /** Empty logical slots below the end, in the order in which they are filled. */
  holes: number[];
  /** Whether positions ascend with logical slots: no hole was ever filled. */
  isSorted: boolean;
  /** Whether every block starts at a multiple of the block size and nothing was evicted. */
  isShareable: boolean;
  /** Content ids of the leading full blocks, and the hash after each. */
  chain: { readonly contentId: number; readonly hash: number }[];
  detached: DetachedPage[];
  readonly view: SequenceView;
}

export function createSequenceState(id: number, salt: string): SequenceState {
  return withView({
    id,
    salt,
    tokens: new IntList(),
    numCommitted: 0,
    blocks: [],
    positions: new IntList(),
    holes: [],
    isSorted: true,
    isShareable: true,
    chain: [],
    detached: [],
  });
}

export function forkState(state: SequenceState, id: number): SequenceState {
  return withView({
    ...state,
    id,
    tokens: new IntList(state.tokens.view()),
    blocks: [...state.blocks],
    positions: new IntList(state.positions.view()),
    holes: [...state.holes],
    chain: [...state.chain],
    detached: state.detached.map(({ pageId, positions }) => ({ pageId, positions: positions.slice() })),
  });
}

function withView(fields: Omit<SequenceState, 'view'>): SequenceState {
  const state: SequenceState = {
    ...fields,
    view: {
      id: fields.id,
      salt: fields.salt,
      get numTokens() {
        return state.tokens.length;
      },
      get numCommitted() {
        return state.numCommitted;
      },
      get numSlots() {
        return state.positions.length;
      },
      get numEvicted() {
        return state.tokens.length - countHeld(state);
      },
      get blocks() {
        return state.blocks;
      },
      get tokens() {
        return state.tokens.view();
      },
      get positions() {
        return state.positions.view();
      },
      get detachedPages() {
        return state.detached;
      },
      get isShareable() {
        return state.isShareable;
      },
    },
  };
  return state;
}

/** Positions in the pool or in a detached page. */
export function countHeld({ positions, holes, detached }: SequenceState): number {
  let numHeld = positions.length - holes.length;
  for (const page of detached) numHeld += countFilled(page.positions);
  return numHeld;
}

export function countFilled(positions: Int32Array): number {
  let count = 0;
  for (const position of positions) if (position >= 0) count++;
  return count;
}

/** Removes a block from the table; the logical slots after it move down. */
export function removeBlock(state: SequenceState, tableIndex: number, blockSize: number): void {
  const begin = tableIndex * blockSize;
  const end = Math.min(begin + blockSize, state.positions.length);
  state.positions.remove(begin, end);
  state.blocks.splice(tableIndex, 1);
  state.holes = state.holes
    .filter((slot) => slot < begin || slot >= end)
    .map((slot) => (slot < begin ? slot : slot - blockSize));
}

/** Table index of the block that starts with a position, for sorted sequences without holes; -1 for none. */
export function tableIndexOf(state: SequenceState, firstPosition: number, blockSize: number): number {
  let low = 0;
  let high = state.blocks.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (state.positions.at(middle * blockSize) < firstPosition) low = middle + 1;
    else high = middle;
  }
  return low < state.blocks.length && state.positions.at(low * blockSize) === firstPosition ? low : -1;
}

/** @throws {Error} when the state contradicts itself */
export function checkSequence(state: SequenceState, blockSize: number, maxBlocks: number): void {
  const { id, blocks, positions, holes, tokens, numCommitted, chain, detached } = state;
  const fail = (message: string): string => `sequence ${id}: ${message}`;
  invariant(blocks.length === Math.ceil(positions.length / blockSize), fail('block table and slots differ'));
  invariant(blocks.length <= maxBlocks, fail('block table too long'));
  invariant(new Set(blocks).size === blocks.length, fail('a block appears twice'));
  invariant(numCommitted <= tokens.length, fail('more committed than appended'));
  const seen = new Set<number>();
  const hold = (position: number): void => {
    invariant(position < tokens.length && !seen.has(position), fail(`position ${position} is invalid or duplicate`));
    seen.add(position);
  };
  const emptySlots = new Set<number>();
  let previous = -1;
  for (let slot = 0; slot < positions.length; slot++) {
    const position = positions.at(slot);
    if (position < 0) {
      emptySlots.add(slot);
      continue;
    }
    hold(position);
    invariant(!state.isSorted || position > previous, fail('positions are not sorted'));
    previous = position;
  }
  invariant(
    emptySlots.size === holes.length && holes.every((slot) => emptySlots.has(slot)),
    fail('holes are inconsistent'),
  );
  for (let index = 0; index < blocks.length; index++) {
    const end = Math.min((index + 1) * blockSize, positions.length);
    let isEmpty = true;
    for (let slot = index * blockSize; slot < end; slot++) if (positions.at(slot) >= 0) isEmpty = false;
    invariant(!isEmpty, fail(`block ${index} of the table is empty`));
  }
  for (const page of detached) {
    invariant(page.positions.length === blockSize, fail('a detached page has the wrong length'));
    invariant(countFilled(page.positions) > 0, fail('a detached page is empty'));
    for (const position of page.positions) if (position >= 0) hold(position);
  }
  for (let position = numCommitted; position < tokens.length; position++) {
    invariant(seen.has(position), fail(`uncommitted position ${position} has no slot`));
  }
  invariant(!state.isShareable || seen.size === tokens.length, fail('shareable, but positions are missing'));
  invariant(chain.length * blockSize <= numCommitted, fail('chain extends beyond committed tokens'));
}
