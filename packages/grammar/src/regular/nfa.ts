/** Nondeterministic automata with the assertions `^` and `$`, and the deterministic ones that they become. */
import type { CodePoints } from '../code-points.js';
import { checkSize, trim, type Dfa, type DfaEdge } from './dfa.js';

/** When a move without a character is possible: always, only before the first, only after the last one. */
export type When = 'always' | 'start' | 'end';

export interface Nfa {
  add(): number;
  move(from: number, on: CodePoints, to: number): void;
  jump(from: number, to: number, when?: When): void;
  /** @param from first state @param to the state that accepts */
  determinise(from: number, to: number): Dfa;
}

export function createNfa(): Nfa {
  const moves: { on: CodePoints; to: number }[][] = [];
  const jumps: { to: number; when: When }[][] = [];

  function close(from: readonly number[], isStart: boolean, isEnd: boolean): number[] {
    const seen = new Set(from);
    const queue = [...from];
    for (let state = queue.pop(); state !== undefined; state = queue.pop()) {
      for (const { to, when } of jumps[state] as { to: number; when: When }[]) {
        if ((when === 'start' && !isStart) || (when === 'end' && !isEnd) || seen.has(to)) continue;
        seen.add(to);
        queue.push(to);
      }
    }
    return [...seen].sort((a, b) => a - b);
  }

  /** Characters that lead to the same states, with these states. */
  function* split(states: readonly number[]): Generator<{ on: CodePoints; targets: number[] }> {
    const own = states.flatMap((state) => moves[state] as { on: CodePoints; to: number }[]);
    const places = new Set<number>();
    for (const { on } of own) for (const [first, last] of on) places.add(first).add(last + 1);
    const bounds = [...places].sort((a, b) => a - b);
    const events = new Map<number, { begins: number[]; ends: number[] }>(
      bounds.map((bound) => [bound, { begins: [], ends: [] }]),
    );
    for (const [index, { on }] of own.entries()) {
      for (const [first, last] of on) {
        events.get(first)?.begins.push(index);
        events.get(last + 1)?.ends.push(index);
      }
    }
    const groups = new Map<string, { on: [number, number][]; targets: number[] }>();
    const active = new Set<number>();
    for (const [i, bound] of bounds.entries()) {
      const { begins, ends } = events.get(bound) as { begins: number[]; ends: number[] };
      for (const index of ends) active.delete(index);
      for (const index of begins) active.add(index);
      if (active.size === 0) continue;
      const targets = [...new Set([...active].map((index) => (own[index] as { to: number }).to))].sort((a, b) => a - b);
      const key = targets.join();
      const group = groups.get(key) ?? { on: [], targets };
      groups.set(key, group);
      group.on.push([bound, (bounds[i + 1] as number) - 1]);
    }
    for (const { on, targets } of groups.values()) yield { on: joined(on), targets };
  }

  function determinise(from: number, to: number): Dfa {
    const first = close([from], true, false);
    const index = new Map<string, number>([[`^${first.join()}`, 0]]);
    const sets = [first];
    const edges: DfaEdge[][] = [];
    const isAccepting: boolean[] = [];
    for (let state = 0; state < sets.length; state++) {
      const set = sets[state] as number[];
      isAccepting.push(close(set, state === 0, true).includes(to));
      const own: DfaEdge[] = [];
      for (const { on, targets } of split(set)) {
        const next = close(targets, false, false);
        const key = next.join();
        let target = index.get(key);
        if (target === undefined) {
          target = sets.push(next) - 1;
          checkSize(target);
          index.set(key, target);
        }
        own.push({ on, target });
      }
      edges.push(own);
    }
    return trim({ edges, isAccepting });
  }

  return {
    add(): number {
      checkSize(moves.length);
      jumps.push([]);
      return moves.push([]) - 1;
    },
    move(from, on, to): void {
      if (on.length > 0) moves[from]?.push({ on, to });
    },
    jump(from, to, when = 'always'): void {
      jumps[from]?.push({ to, when });
    },
    determinise,
  };
}

/** Ascending ranges without seams. */
function joined(ranges: readonly [number, number][]): CodePoints {
  const result: [number, number][] = [];
  for (const [first, last] of ranges) {
    const previous = result.at(-1);
    if (previous !== undefined && previous[1] + 1 === first) previous[1] = last;
    else result.push([first, last]);
  }
  return result;
}
