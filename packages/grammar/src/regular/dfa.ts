/** Deterministic finite automata over characters, for patterns, lengths and excluded names. */
import { allCodePoints, complement, hasCodePoint, intersect, normalize, type CodePoints } from '../code-points.js';
import type { Sliced } from '@winnow/tensor';
import type { WorkBudget } from '../work-budget.js';

/** Maximum number of states of an automaton, which bounds the cost of a pattern. */
const maxStates = 40_000;

export interface DfaEdge {
  readonly on: CodePoints;
  readonly target: number;
}

/** Starts in state 0. Edges of a state do not overlap; a character without an edge is rejected. */
export interface Dfa {
  readonly edges: readonly (readonly DfaEdge[])[];
  readonly isAccepting: readonly boolean[];
}

/** @throws {CapacityError} for an automaton that would be too large */
export function checkSize(numStates: number, budget: WorkBudget): void {
  if (numStates > maxStates) budget.refuse('states of a pattern', numStates, maxStates, 'states');
}

export function accepts({ edges, isAccepting }: Dfa, text: string): boolean {
  let state = 0;
  for (const char of text) {
    const codePoint = char.codePointAt(0) as number;
    const edge = (edges[state] as readonly DfaEdge[]).find(({ on }) => hasCodePoint(on, codePoint));
    if (edge === undefined) return false;
    state = edge.target;
  }
  return isAccepting[state] as boolean;
}

/** The complement. */
export function* complementDfa(dfa: Dfa, budget: WorkBudget): Sliced<Dfa> {
  const sink = dfa.edges.length;
  const edges: (readonly DfaEdge[])[] = [];
  for (const own of dfa.edges) {
    budget.spend(10 + 2 * numRanges(own));
    if (budget.isSliceOver()) yield;
    const missing = complement(normalize(own.flatMap(({ on }) => on)));
    edges.push(missing.length === 0 ? own : [...own, { on: missing, target: sink }]);
  }
  return {
    edges: [...edges, [{ on: allCodePoints, target: sink }]],
    isAccepting: [...dfa.isAccepting.map((is) => !is), true],
  };
}

function numRanges(edges: readonly DfaEdge[]): number {
  return edges.reduce((sum, { on }) => sum + on.length, 0);
}

/** The intersection. */
export function* intersectDfa(a: Dfa, b: Dfa, budget: WorkBudget): Sliced<Dfa> {
  const index = new Map<string, number>([['0,0', 0]]);
  const pairs: [number, number][] = [[0, 0]];
  const edges: DfaEdge[][] = [];
  for (let state = 0; state < pairs.length; state++) {
    const [left, right] = pairs[state] as [number, number];
    const own: DfaEdge[] = [];
    for (const edgeA of a.edges[left] as readonly DfaEdge[]) {
      if (budget.isSliceOver()) yield;
      for (const edgeB of b.edges[right] as readonly DfaEdge[]) {
        budget.spend(5 + 2 * (edgeA.on.length + edgeB.on.length));
        const on = intersect(edgeA.on, edgeB.on);
        if (on.length === 0) continue;
        const key = `${edgeA.target},${edgeB.target}`;
        let target = index.get(key);
        if (target === undefined) {
          target = pairs.push([edgeA.target, edgeB.target]) - 1;
          checkSize(target, budget);
          index.set(key, target);
        }
        own.push({ on, target });
      }
    }
    edges.push(own);
  }
  const isAccepting = pairs.map(([l, r]) => (a.isAccepting[l] && b.isAccepting[r]) as boolean);
  return yield* trim({ edges, isAccepting }, budget);
}

/**
 * Restricts texts to `min` to `max` characters. The result has a copy of the automaton for each length that matters; the
 * copies share their sets of characters. A bound that every text already satisfies costs nothing.
 */
export function* limitLength(dfa: Dfa, min: number, max: number | undefined, budget: WorkBudget): Sliced<Dfa> {
  const { shortest, longest } = yield* lengthsOf(dfa, budget);
  const [least, most] = [shortest >= min ? 0 : min, max === undefined || longest <= max ? undefined : max];
  if (least === 0 && most === undefined) return dfa;
  const last = most ?? least; // without an upper bound, longer texts are not distinguished
  const index = new Map<string, number>([['0,0', 0]]);
  const pairs: [state: number, length: number][] = [[0, 0]];
  const edges: DfaEdge[][] = [];
  for (let number = 0; number < pairs.length; number++) {
    if (budget.isSliceOver()) yield;
    const [state, length] = pairs[number] as [number, number];
    const own: DfaEdge[] = [];
    edges.push(own);
    if (length === most) continue;
    for (const { on, target } of dfa.edges[state] as readonly DfaEdge[]) {
      budget.spend(20);
      const next: [number, number] = [target, Math.min(length + 1, last)];
      const key = next.join();
      let copy = index.get(key);
      if (copy === undefined) {
        copy = pairs.push(next) - 1;
        checkSize(copy, budget);
        index.set(key, copy);
      }
      own.push({ on, target: copy });
    }
  }
  const isAccepting = pairs.map(([state, length]) => dfa.isAccepting[state] === true && length >= least);
  return yield* trim({ edges, isAccepting }, budget);
}

/** Whether all texts of the automaton have `min` to `max` characters. */
export function* satisfiesLength(dfa: Dfa, min: number, max: number | undefined, budget: WorkBudget): Sliced<boolean> {
  const { shortest, longest } = yield* lengthsOf(dfa, budget);
  return shortest >= min && (max === undefined || longest <= max);
}

/** Lengths of the texts of a trimmed automaton, in characters; the longest one may be infinite. */
function* lengthsOf(
  { edges, isAccepting }: Dfa,
  budget: WorkBudget,
): Sliced<{ readonly shortest: number; readonly longest: number }> {
  const distances = new Map<number, number>([[0, 0]]);
  let shortest = Infinity;
  for (const [state, distance] of distances) {
    if (isAccepting[state] === true) shortest = Math.min(shortest, distance);
    for (const { target } of edges[state] as readonly DfaEdge[]) {
      budget.spend(2);
      if (!distances.has(target)) distances.set(target, distance + 1);
    }
    if (budget.isSliceOver()) yield;
  }
  return { shortest, longest: yield* longestPath(edges, budget) };
}

/** Edges of the longest path from state 0; infinite when there is a cycle. */
function* longestPath(edges: Dfa['edges'], budget: WorkBudget): Sliced<number> {
  const numSources = new Int32Array(edges.length);
  for (const own of edges) {
    for (const { target } of own) numSources[target]!++;
    budget.spend(own.length);
    if (budget.isSliceOver()) yield;
  }
  const lengths = new Int32Array(edges.length);
  const order = numSources[0] === 0 ? [0] : [];
  for (const state of order) {
    for (const { target } of edges[state] as readonly DfaEdge[]) {
      budget.spend(2);
      lengths[target] = Math.max(lengths[target]!, lengths[state]! + 1);
      if (--numSources[target]! === 0) order.push(target);
    }
    if (budget.isSliceOver()) yield;
  }
  return order.length < edges.length ? Infinity : lengths.reduce((most, length) => Math.max(most, length), 0);
}

/**
 * Decimal numbers without an exponent that are multiples of `divisor / 10^numDigits`, with at most `numDigits` digits
 * after the point. A state consists of the remainder and the number of digits read after the point.
 */
export function* multipleDfa(divisor: number, numDigits: number, budget: WorkBudget): Sliced<Dfa> {
  const numStates = 2 + divisor * (numDigits + 2);
  checkSize(numStates, budget);
  budget.spend(50 * numStates);
  /** Row 0 is before the point, row `count + 1` is after `count` digits that follow it. */
  const stateOf = (row: number, remainder: number): number => 2 + row * divisor + remainder;
  const digits = (row: number, remainder: number): DfaEdge[] => {
    const targets = new Map<number, [number, number][]>();
    for (let digit = 0; digit < 10; digit++) {
      const target = stateOf(row, (remainder * 10 + digit) % divisor);
      targets.set(target, [...(targets.get(target) ?? []), [0x30 + digit, 0x30 + digit]]);
    }
    return [...targets].map(([target, on]) => ({ on: normalize(on), target }));
  };
  const edges: DfaEdge[][] = [[{ on: [[0x2d, 0x2d]], target: 1 }, ...digits(0, 0)], digits(0, 0)];
  const isAccepting = [false, false];
  for (let row = 0; row <= numDigits + 1; row++) {
    const numMissing = row === 0 ? numDigits : numDigits + 1 - row;
    if (budget.isSliceOver()) yield;
    for (let remainder = 0; remainder < divisor; remainder++) {
      const more = row === 0 ? digits(0, remainder) : row <= numDigits ? digits(row + 1, remainder) : [];
      const point: DfaEdge[] = row === 0 ? [{ on: [[0x2e, 0x2e]], target: stateOf(1, remainder) }] : [];
      edges.push([...more, ...point]);
      isAccepting.push(row !== 1 && (BigInt(remainder) * 10n ** BigInt(numMissing)) % BigInt(divisor) === 0n);
    }
  }
  return yield* trim({ edges, isAccepting }, budget);
}

/** Removes states that cannot reach an accepting one. The empty language is a single state without edges. */
export function* trim(dfa: Dfa, budget: WorkBudget): Sliced<Dfa> {
  const isLive = yield* liveStates(dfa, budget);
  const numbers: number[] = [];
  let next = 0;
  for (const live of isLive) numbers.push(live ? next++ : -1);
  const edges: DfaEdge[][] = [];
  for (const [state, own] of dfa.edges.entries()) {
    if (!isLive[state]) continue;
    const kept = own.filter(({ target }) => isLive[target]);
    edges.push(kept.map(({ on, target }) => ({ on, target: numbers[target] as number })));
    budget.spend(5 + own.length);
    if (budget.isSliceOver()) yield;
  }
  return { edges, isAccepting: dfa.isAccepting.filter((_, state) => isLive[state]) };
}

/** State 0, and all that can reach an accepting state. */
function* liveStates({ edges, isAccepting }: Dfa, budget: WorkBudget): Sliced<readonly boolean[]> {
  const sources: number[][] = edges.map(() => []);
  for (const [state, own] of edges.entries()) {
    for (const { target } of own) sources[target]?.push(state);
    budget.spend(5 + own.length);
    if (budget.isSliceOver()) yield;
  }
  const isLive = [...isAccepting];
  const queue = [...isLive.keys()].filter((state) => isLive[state]);
  for (let state = queue.pop(); state !== undefined; state = queue.pop()) {
    for (const source of sources[state] as number[]) {
      if (!isLive[source]) queue.push(source);
      isLive[source] = true;
    }
    budget.spend(5 + (sources[state] as number[]).length);
    if (budget.isSliceOver()) yield;
  }
  isLive[0] = true;
  return isLive;
}

/** True when no text is accepted. */
export function isEmptyDfa({ isAccepting }: Dfa): boolean {
  return !isAccepting.includes(true); // all states of a trimmed automaton are reachable
}
