/** The number of passes that a program reserves suffices for any set of active neurons. */
import { neuronGroup } from '@winnow/ops';
import { createRng } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { countPasses } from './program.js';

/** Passes that a step makes: as many neurons as fit, in whole groups except for the last pass. */
function passesOf(active: readonly number[], isPinned: (neuron: number) => boolean, numFree: number): number {
  let numPasses = 0;
  for (let begin = 0; begin < active.length || numPasses === 0; numPasses++) {
    let numTaken = 0;
    let end = begin;
    for (; end < active.length; end++) {
      if (!isPinned(active[end] as number) && ++numTaken > numFree) break;
    }
    if (end < active.length) end -= (end - begin) % neuronGroup;
    if (end === begin && end < active.length) return Infinity;
    begin = end;
  }
  return numPasses;
}

test('neurons: a step never needs more passes than the program has, whatever is active or pinned', () => {
  const rng = createRng(3);
  let numTight = 0;
  for (let round = 0; round < 3000; round++) {
    const numItems = 40 + rng.nextInt(600);
    const density = rng.nextInt(11);
    const pinned = Array.from({ length: numItems }, () => rng.nextInt(10) < density);
    const numPinned = pinned.filter(Boolean).length;
    const numFree = neuronGroup + rng.nextInt(round % 2 === 0 ? 16 : 300);
    const layer = { layer: 0, kind: 'neuron', numItems, matrices: [], slots: numPinned + numFree, numPinned } as const;
    const share = 1 + rng.nextInt(10);
    const active = pinned.map((_, neuron) => neuron).filter(() => rng.nextInt(10) < share);
    const numPasses = passesOf(active, (neuron) => pinned[neuron] === true, numFree);
    const maxPasses = countPasses(layer, numItems);
    const sizes = `${numItems} neurons, ${numPinned} pinned, ${numFree} free slots`;
    expect(numPasses > maxPasses, `${numPasses} of ${maxPasses} passes: ${sizes}`).toBe(false);
    if (numPasses === maxPasses) numTight++;
  }
  expect(numTight).toBeGreaterThan(100);
});

test('experts: those that do not fit the free slots run in later passes', () => {
  const layer = { layer: 0, kind: 'expert', numItems: 32, matrices: [], slots: 9, numPinned: 1 } as const;
  expect(countPasses(layer, 8)).toBe(1);
  expect(countPasses(layer, 9)).toBe(2);
  expect(countPasses(layer, 32)).toBe(4);
});
