/** Deterministic finite automata over characters, for patterns, lengths and excluded names. */
import { CapacityError } from '@winnow/tensor';
import { allCodePoints, difference, hasCodePoint, intersect, normalize, type CodePoints } from '../code-points.js';

/** Maximum number of states of an automaton, which bounds the cost of a pattern. */
const maxStates = 20_000;

export interface DfaEdge {
  readonly on: CodePoints;
  readonly target: number;
}

/** Starts in state 0. Edges of a state do not overlap; a character without an edge is rejected. */
export interface Dfa {
  readonly edges: readonly (readonly DfaEdge[])[];
  readonly isAccepting: readonly boolean[];
}

export function checkSize(numStates: number): void {
  if (numStates <= maxStates) return;
  throw new CapacityError({ resource: 'states of a pattern', needed: numStates, available: maxStates, unit: 'states' });
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
export function complementDfa(dfa: Dfa): Dfa {
  const sink = dfa.edges.length;
  const edges = dfa.edges.map((own) => {
    const missing = own.reduce<CodePoints>((rest, { on }) => difference(rest, on), allCodePoints);
    return missing.length === 0 ? own : [...own, { on: missing, target: sink }];
  });
  return {
    edges: [...edges, [{ on: allCodePoints, target: sink }]],
    isAccepting: [...dfa.isAccepting.map((is) => !is), true],
  };
}

/** The intersection. */
export function intersectDfa(a: Dfa, b: Dfa): Dfa {
  const index = new Map<string, number>([['0,0', 0]]);
  const pairs: [number, number][] = [[0, 0]];
  const edges: DfaEdge[][] = [];
  for (let state = 0; state < pairs.length; state++) {
    const [left, right] = pairs[state] as [number, number];
    const own: DfaEdge[] = [];
    for (const edgeA of a.edges[left] as readonly DfaEdge[]) {
      for (const edgeB of b.edges[right] as readonly DfaEdge[]) {
        const on = intersect(edgeA.on, edgeB.on);
        if (on.length === 0) continue;
        const key = `${edgeA.target},${edgeB.target}`;
        let target = index.get(key);
        if (target === undefined) {
          target = pairs.push([edgeA.target, edgeB.target]) - 1;
          checkSize(target);
          index.set(key, target);
        }
        own.push({ on, target });
      }
    }
    edges.push(own);
  }
  return trim({ edges, isAccepting: pairs.map(([l, r]) => (a.isAccepting[l] && b.isAccepting[r]) as boolean) });
}

/** All texts of `min` to `max` characters. */
export function lengthDfa(min: number, max: number | undefined): Dfa {
  checkSize(Math.max(min, max ?? 0));
  const last = max ?? min;
  const edges: DfaEdge[][] = [];
  for (let length = 0; length < last; length++) edges.push([{ on: allCodePoints, target: length + 1 }]);
  edges.push(max === undefined ? [{ on: allCodePoints, target: last }] : []);
  return { edges, isAccepting: edges.map((_, length) => length >= min) };
}

/** Multiples of an integer, with an optional minus sign. */
export function multipleDfa(divisor: number): Dfa {
  checkSize(divisor + 2);
  const digits = (remainder: number): DfaEdge[] => {
    const targets = new Map<number, [number, number][]>();
    for (let digit = 0; digit < 10; digit++) {
      const target = 2 + ((remainder * 10 + digit) % divisor);
      targets.set(target, [...(targets.get(target) ?? []), [0x30 + digit, 0x30 + digit]]);
    }
    return [...targets].map(([target, on]) => ({ on: normalize(on), target }));
  };
  const edges = [[{ on: [[0x2d, 0x2d]] as CodePoints, target: 1 }, ...digits(0)], digits(0)];
  for (let remainder = 0; remainder < divisor; remainder++) edges.push(digits(remainder));
  return { edges, isAccepting: edges.map((_, state) => state === 2) };
}

/** Removes states from which nothing is accepted; the empty language is one state without edges. */
export function trim({ edges, isAccepting }: Dfa): Dfa {
  const sources: number[][] = edges.map(() => []);
  for (const [state, own] of edges.entries()) for (const { target } of own) sources[target]?.push(state);
  const isLive = [...isAccepting];
  const queue = [...isLive.keys()].filter((state) => isLive[state]);
  for (let state = queue.pop(); state !== undefined; state = queue.pop()) {
    for (const source of sources[state] as number[]) {
      if (!isLive[source]) queue.push(source);
      isLive[source] = true;
    }
  }
  isLive[0] = true;
  const numbers: number[] = [];
  let next = 0;
  for (const live of isLive) numbers.push(live ? next++ : -1);
  const kept = [...edges.keys()].filter((state) => isLive[state]);
  return {
    edges: kept.map((state) =>
      (edges[state] as readonly DfaEdge[])
        .filter(({ target }) => isLive[target])
        .map(({ on, target }) => ({ on, target: numbers[target] as number })),
    ),
    isAccepting: kept.map((state) => isAccepting[state] as boolean),
  };
}

/** True when no text is accepted. */
export function isEmptyDfa({ isAccepting }: Dfa): boolean {
  return !isAccepting.includes(true); // all states of a trimmed automaton are reachable
}
