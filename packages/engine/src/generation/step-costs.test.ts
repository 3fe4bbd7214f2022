import { expect, test } from 'vitest';
import { StepCosts } from './step-costs.js';

/** Costs after steps of these numbers of tokens. */
function costsAfter(...steps: readonly (readonly [numTokens: number, cost: number])[]): StepCosts {
  const costs = new StepCosts();
  for (const [numTokens, cost] of steps) costs.note(numTokens, cost);
  return costs;
}

test('the first step of a size, whose code is new, is not measured, and counts as expected', () => {
  const costs = new StepCosts();
  expect(costs.note(2, 9)).toBe(2);
  expect(costs.maxKnown).toBe(1);
  expect(costs.note(2, 1.5)).toBe(1.5);
  expect([costs.maxKnown, costs.of(2)]).toEqual([2, 1.5]);
  expect(costs.note(4, 7)).toBe(2.5); // each further token costs half a step
});

test('a step counts with no more than the one of its size before it', () => {
  const costs = costsAfter([2, 1.5], [2, 1.5]);
  expect([costs.note(2, 4), costs.note(2, 5), costs.note(2, 1.5)]).toEqual([1.5, 4, 1.5]);
});

test('costs between measured sizes are interpolated, those beyond them extrapolated', () => {
  const costs = costsAfter([2, 2], [2, 2], [6, 3], [6, 3]);
  expect([2, 4, 6, 11].map((size) => costs.of(size))).toEqual([2, 2.5, 3, 5]);
});

test('fewer tokens cost no more than more of them', () => {
  const costs = costsAfter([4, 9], [4, 9], [5, 2], [5, 2]);
  expect([costs.of(4), costs.of(5)]).toEqual([2, 2]);
});

test('costs of sizes that no step had for long are forgotten', () => {
  const costs = costsAfter([2, 1.5], [2, 1.5], [3, 1.6], [3, 1.6]);
  for (let step = 0; step < 200; step++) costs.notePlain();
  costs.note(2, 1.5);
  for (let step = 0; step < 100; step++) costs.notePlain();
  costs.forgetOld();
  expect([costs.maxKnown, costs.of(3)]).toEqual([2, 2]);
});
