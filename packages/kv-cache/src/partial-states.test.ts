import { clearState, mergeState } from '@winnow/ops';
import { createRng } from '@winnow/tensor';
import { expect, it } from 'vitest';
import { createStates } from './index.js';
import { mergeStates } from './partial-states.js';

it('states begin and merge as those of @winnow/ops, bit for bit', () => {
  const rng = createRng(2);
  const dim = 5;
  const [ours, theirs, fresh] = [createStates(3, dim), createStates(3, dim), createStates(3, dim)];
  for (let row = 0; row < 3; row++) clearState(theirs, row, dim);
  expect(theirs).toEqual(fresh);
  const maxima = [1, -3, 8, -Infinity, 0, NaN, 4, Infinity];
  for (let i = 0; i < 40; i++) {
    const source = createStates(2, dim);
    source.m.fill(maxima[i % 5] ?? 0);
    if (i > 35) source.m.fill(maxima[i % maxima.length] ?? 0);
    for (const values of [source.l, source.o]) for (let j = 0; j < values.length; j++) values[j] = rng.nextGaussian();
    mergeStates(ours, i % 3, source, 1, dim);
    mergeState(theirs, i % 3, source, 1, dim);
    expect(ours).toEqual(theirs);
  }
});
