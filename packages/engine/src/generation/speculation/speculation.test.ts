import { expect, test } from 'vitest';
import { SpeculationCounts } from '../../metrics/speculation.js';
import type { Drafter } from './drafter.js';
import { Speculation } from './speculation.js';
import { StepCosts } from '../step-costs.js';

/** Proposes one token for every text. */
const lookup: Drafter = { accept() {}, find: () => 1, draft: (count) => Array.from({ length: count }, () => 7) };

test('drafts that are not made show when they would be right', async () => {
  const counts = new SpeculationCounts();
  const speculation = new Speculation({ lookup, model: undefined, counts, costs: new StepCosts(), now: () => 0 });
  /** Generates tokens; a step of several costs a tenth more for each of them. */
  const generate = async (token: number, numTokens: number): Promise<void> => {
    for (let numGenerated = 0; numGenerated < numTokens;) {
      const { length } = await speculation.draft(1, 15, undefined);
      const numAccepted = token === 7 ? length : 0;
      speculation.note(length, 1, numAccepted, 1 + length / 10);
      for (let index = 0; index <= numAccepted; index++) speculation.accept(token);
      numGenerated += 1 + numAccepted;
    }
  };
  await generate(5, 400);
  const { numDraftedTokens } = speculation.metrics();
  expect(numDraftedTokens).toBeLessThan(10);
  await generate(7, 100);
  const { numAcceptedTokens } = speculation.metrics();
  expect(numAcceptedTokens).toBeGreaterThan(60);
  expect(speculation.metrics().numDraftedTokens - numDraftedTokens).toBe(numAcceptedTokens);
});
