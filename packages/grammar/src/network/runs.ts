/** Which runs of an automaton of counted items can still end at an accepting state with an allowed count. */
import type { AutomatonState, CountRange } from '../grammar.js';
import type { WorkBudget } from '../work-budget.js';

/** The states that runs from each state can reach. */
export interface Runs {
  /** Items to the nearest accepting state; infinite when there is none. */
  readonly distances: readonly number[]; // [numStates]
  /** By `missing * numStates + state`: whether a run that lacks `missing` items for the minimum can end. */
  readonly canEnd: Uint8Array; // [(min + 1) * numStates]
}

/** Maximum number of edges times the minimum: they are followed at once. */
const maxSteps = 3_000_000;

/** @throws {CapacityError} when it takes too much work: it is linear in the edges times the minimum */
export function runsOf(
  states: readonly AutomatonState[],
  { min, max = Infinity }: CountRange,
  budget: WorkBudget,
): Runs {
  const distances = distancesOf(states, budget);
  const width = states.length;
  const numEdges = states.reduce((sum, { edges }) => sum + edges.length, 0);
  const numSteps = (min + 1) * (width + numEdges);
  if (numSteps > maxSteps) budget.refuse('counted items', numSteps, maxSteps, 'steps');
  budget.spend(numSteps);
  const canEnd = new Uint8Array((min + 1) * width);
  for (const [state, distance] of distances.entries()) {
    if (distance !== Infinity && distance <= max - min) canEnd[state] = 1;
  }
  for (let missing = 1; missing <= min; missing++) {
    const [here, next] = [missing * width, (missing - 1) * width];
    for (const [state, { edges }] of states.entries()) {
      if (edges.some(({ target }) => canEnd[next + target] === 1)) canEnd[here + state] = 1;
    }
  }
  return { distances, canEnd };
}

/** Whether any run has an allowed count. */
export function canRun(states: readonly AutomatonState[], range: CountRange, budget: WorkBudget): boolean {
  const { canEnd } = runsOf(states, range, budget);
  return canEnd[range.min * states.length] === 1;
}

function distancesOf(states: readonly AutomatonState[], budget: WorkBudget): readonly number[] {
  const sources: number[][] = states.map(() => []);
  for (const [state, { edges }] of states.entries()) for (const { target } of edges) sources[target]?.push(state);
  const distances = states.map(({ isAccepting }) => (isAccepting ? 0 : Infinity));
  const queue = [...distances.keys()].filter((state) => distances[state] === 0);
  for (const state of queue) {
    budget.spend(2 + (sources[state] as number[]).length);
    for (const source of sources[state] as number[]) {
      if (distances[source] !== Infinity) continue;
      distances[source] = (distances[state] as number) + 1;
      queue.push(source);
    }
  }
  return distances;
}
