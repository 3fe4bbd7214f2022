import { expect, test } from 'vitest';
import { StepCosts } from './step-costs.js';

/** Costs after a first step of each of these numbers of tokens, which is not measured, and measured ones. */
function costsAfter(...steps: readonly (readonly [numTokens: number, ...costs: number[]])[]): StepCosts {
  const costs = new StepCosts();
  for (const [numTokens, ...measured] of steps) for (const cost of [9, ...measured]) costs.note(numTokens, cost);
  return costs;
}

test('the first step of a size, whose code is new, is not measured, and counts at most as expected', () => {
  const costs = new StepCosts();
  expect(costs.note(2, 9)).toBe(2);
  expect([1.4, 1.5, 1.5].map((cost) => costs.note(2, cost))).toEqual([1.4, 1.4, 1.5]);
  expect([costs.maxKnown, costs.of(2)]).toEqual([2, 1.5]);
  expect(costs.note(3, 1.2)).toBe(1.2);
  expect(costs.note(4, 7)).toBe(2.5); // each further token costs half a step
});

test('a cost is the median of the latest five steps, and the least of one or two', () => {
  const costs = costsAfter([2]);
  expect(costs.maxKnown).toBe(1);
  expect([4, 1.5, 1.6, 5, 1.7, 1.7, 1.2].map((cost) => costs.note(2, cost))).toEqual([4, 1.5, 1.6, 4, 1.7, 1.7, 1.7]);
});

test('a step that is not measured counts as usual and changes nothing', () => {
  const costs = costsAfter([2, 1.5, 1.5, 1.5]);
  expect([costs.note(2, undefined), costs.note(3, undefined), costs.of(2), costs.maxKnown]).toEqual([1.5, 2, 1.5, 2]);
});

test('costs between measured sizes are interpolated, those beyond them extrapolated', () => {
  const costs = costsAfter([2, 2, 2, 2], [6, 3, 3, 3]);
  expect([2, 4, 6, 11].map((size) => costs.of(size))).toEqual([2, 2.5, 3, 5]);
});

test('fewer tokens cost no more than more of them', () => {
  const costs = costsAfter([4, 9, 9, 9], [5, 2, 2, 2]);
  expect([costs.of(4), costs.of(5)]).toEqual([2, 2]);
});

test('costs of sizes that no step had for long are forgotten, sooner where few were measured', () => {
  const costs = costsAfter([2, 1.5, 1.5, 1.5], [3, 1.6, 1.6, 1.6], [4, 2, 2]);
  const pass = (numSteps: number): void => {
    for (let step = 0; step < numSteps; step++) costs.notePlain();
    costs.forgetOld();
  };
  pass(40);
  expect(costs.maxKnown).toBe(3);
  pass(160);
  costs.note(2, 1.5);
  pass(100);
  expect([costs.maxKnown, costs.of(3)]).toEqual([2, 2]);
});
