import { ArgumentError, CapacityError } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { ProgramBuilder } from './program-builder.js';
import { checkScalars, createScalarBlock } from './scalars.js';

function example(): ReturnType<ProgramBuilder['build']> {
  const b = new ProgramBuilder({ T: 4, B: 2 });
  b.scalar('tokens', ['T']);
  b.scalar('table', ['B', 3]);
  return b.build();
}

describe('scalar block', () => {
  const { scalars, symbols, peakBytes } = example();

  it('lays out symbols first, then slots at their capacity', () => {
    expect([...scalars.slots.values()]).toEqual([
      { name: 'T', wordOffset: 0, numWords: 1 },
      { name: 'B', wordOffset: 1, numWords: 1 },
      { name: 'tokens', wordOffset: 2, numWords: 4 },
      { name: 'table', wordOffset: 6, numWords: 6 },
    ]);
    expect(scalars.numWords).toBe(12);
    expect(peakBytes).toBe(48);
  });

  it('binds symbols and exposes slots as views of the same words', () => {
    const block = createScalarBlock(scalars, symbols);
    block.bind('T', 3);
    block.slot('tokens').set([7, 8, 9]);
    expect([...block.words]).toEqual([3, 0, 7, 8, 9, 0, 0, 0, 0, 0, 0, 0]);
    block.bind('T', 0);
    block.bind('T', 4);
  });

  it('rejects values beyond their capacity', () => {
    const block = createScalarBlock(scalars, symbols);
    expect(() => block.bind('T', 5)).toThrow(CapacityError);
    expect(() => block.bind('T', 5)).toThrow('symbol T: needed 5 elements, available 4 elements');
    for (const value of [-1, 1.5, NaN]) expect(() => block.bind('T', value)).toThrow(ArgumentError);
    expect(() => block.bind('Q', 1)).toThrow('symbol: expected T | B, got Q');
    expect(() => block.slot('Q')).toThrow(ArgumentError);
  });

  it('checks raw words before a run', () => {
    const words = new Int32Array(12);
    words[0] = 4;
    expect(() => checkScalars(words, scalars, symbols)).not.toThrow();
    expect(() => checkScalars(words.subarray(1), scalars, symbols)).toThrow('scalars: expected 12 words, got 11 words');
    words[0] = 5;
    expect(() => checkScalars(words, scalars, symbols)).toThrow(CapacityError);
    words[0] = -1;
    expect(() => checkScalars(words, scalars, symbols)).toThrow(ArgumentError);
  });
});
