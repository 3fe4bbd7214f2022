/**
 * The scalar block: the words that change from step to step (token ids, positions, lengths, block tables and the
 * values of symbols). It is one array of 32-bit integers, so that a step copies a single small buffer.
 */
import { ArgumentError, CapacityError } from '@winnow/tensor';
import type { Dim } from '../spec/dims.js';
import type { Program } from './program.js';

/** A run of words in the block. */
export interface ScalarSlot {
  readonly name: string;
  readonly wordOffset: number;
  readonly numWords: number;
}

/** The layout of the block. */
export interface ScalarLayout {
  readonly slots: ReadonlyMap<string, ScalarSlot>;
  readonly numWords: number;
}

/** The values of one step, reused across steps without allocation. */
export interface ScalarBlock {
  readonly words: Int32Array; // [layout.numWords]
  /** Binds a symbol. @throws {CapacityError} when the value exceeds the symbol's capacity */
  bind(symbol: string, value: number): void;
  /** The words of a slot, to be filled by the caller. */
  slot(name: string): Int32Array;
}

/** Creates the block of a program, all zeros. */
export function createScalarBlock(layout: ScalarLayout, capacities: ReadonlyMap<string, number>): ScalarBlock {
  const words = new Int32Array(layout.numWords);
  const views = new Map<string, Int32Array>();
  for (const { name, wordOffset, numWords } of layout.slots.values()) {
    views.set(name, words.subarray(wordOffset, wordOffset + numWords));
  }
  return {
    words,
    bind(symbol, value): void {
      const capacity = capacities.get(symbol);
      if (capacity === undefined) {
        throw new ArgumentError({ argument: 'symbol', expected: [...capacities.keys()].join(' | '), actual: symbol });
      }
      if (!Number.isSafeInteger(value) || value < 0) {
        throw new ArgumentError({ argument: symbol, expected: 'a non-negative integer', actual: String(value) });
      }
      if (value > capacity) {
        throw new CapacityError({ resource: `symbol ${symbol}`, needed: value, available: capacity, unit: 'elements' });
      }
      const slot = layout.slots.get(symbol) as ScalarSlot;
      words[slot.wordOffset] = value;
    },
    slot(name): Int32Array {
      const view = views.get(name);
      if (view === undefined) {
        throw new ArgumentError({ argument: 'scalar slot', expected: [...views.keys()].join(' | '), actual: name });
      }
      return view;
    },
  };
}

/** The size of every axis in a step with these scalars, of a shape whose symbols the program has. */
export function shapeInStep({ scalars: { slots } }: Program, shape: readonly Dim[], words: Int32Array): number[] {
  return shape.map((dim) => (typeof dim === 'number' ? dim : words[(slots.get(dim) as ScalarSlot).wordOffset]));
}

/**
 * Rejects invalid scalars: the wrong number of words, or a symbol beyond its capacity. Backends call it before they
 * touch memory. The code that fills token ids, slots and block tables must check them.
 * @throws {ArgumentError | CapacityError}
 */
export function checkScalars(
  words: Int32Array,
  { slots, numWords }: ScalarLayout,
  capacities: ReadonlyMap<string, number>,
): void {
  if (words.length !== numWords) {
    throw new ArgumentError({ argument: 'scalars', expected: `${numWords} words`, actual: `${words.length} words` });
  }
  for (const [symbol, available] of capacities) {
    const slot = slots.get(symbol) as ScalarSlot;
    const value = words[slot.wordOffset];
    if (value < 0) {
      throw new ArgumentError({ argument: symbol, expected: 'a non-negative integer', actual: String(value) });
    }
    if (value > available) {
      throw new CapacityError({ resource: `symbol ${symbol}`, needed: value, available, unit: 'elements' });
    }
  }
}
