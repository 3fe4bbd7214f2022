/** A slow, simple recognizer: the possible ends of a rule in a text, by sets and fixpoints over characters. */
import type { Grammar, GrammarNode } from '../src/index.js';

type Kind<K extends GrammarNode['kind']> = Extract<GrammarNode, { kind: K }>;
type Places = ReadonlySet<number>;

export function recognizes(grammar: Grammar, text: string): boolean {
  return new Recognizer(grammar, text).isMatch();
}

class Recognizer {
  readonly #grammar: Grammar;
  readonly #chars: readonly number[];
  /** Ends of a rule that begins at a place, by both. */
  readonly #memo = new Map<string, Set<number>>();

  constructor(grammar: Grammar, text: string) {
    this.#grammar = grammar;
    this.#chars = Array.from(text, (char) => char.codePointAt(0) as number);
  }

  isMatch(): boolean {
    const { root, rules } = this.#grammar;
    this.#ends({ kind: 'rule', name: root }, 0);
    for (let changed = true; changed;) {
      changed = false;
      for (const [key, known] of this.#memo) {
        const [begin, name] = key.split(' ') as [string, string];
        for (const end of this.#ends(rules.get(name) as GrammarNode, Number(begin))) {
          if (!known.has(end)) changed = true;
          known.add(end);
        }
      }
    }
    return this.#memo.get(`0 ${root}`)?.has(this.#chars.length) === true;
  }

  #ends(node: GrammarNode, begin: number): Places {
    switch (node.kind) {
      case 'literal': {
        const wanted = Array.from(node.text, (char) => char.codePointAt(0));
        const isThere = wanted.every((char, i) => this.#chars[begin + i] === char);
        return new Set(isThere ? [begin + wanted.length] : []);
      }
      case 'class': {
        const char = this.#chars[begin];
        const isIn = char !== undefined && node.ranges.some(([first, last]) => char >= first && char <= last);
        return new Set(isIn ? [begin + 1] : []);
      }
      case 'sequence':
        return node.items.reduce<Places>((from, item) => this.#after(from, item), new Set([begin]));
      case 'choice':
        return new Set(node.alternatives.flatMap((alternative) => [...this.#ends(alternative, begin)]));
      case 'repeat':
        return this.#repetitions(node, begin);
      case 'token':
        throw new Error('tokens have no characters');
      case 'unordered':
        return this.#orderings(node, begin);
      case 'automaton':
        return this.#runs(node, begin);
      case 'rule': {
        const key = `${begin} ${node.name}`;
        const known = this.#memo.get(key) ?? new Set<number>();
        this.#memo.set(key, known);
        return known;
      }
    }
  }

  #after(from: Places, node: GrammarNode): Places {
    return new Set([...from].flatMap((begin) => [...this.#ends(node, begin)]));
  }

  #repetitions({ item, min, max = Infinity }: Kind<'repeat'>, begin: number): Places {
    let from: Places = new Set([begin]);
    for (let count = 0; count < min; count++) from = this.#after(from, item);
    const all = new Set(from);
    for (let count = min; count < max && from.size > 0; count++) {
      from = new Set([...this.#after(from, item)].filter((end) => !all.has(end)));
      for (const end of from) all.add(end);
    }
    return all;
  }

  /** By how often each member occurred. */
  #orderings({ separator, members, min, max = Infinity }: Kind<'unordered'>, begin: number): Places {
    const counts = members.map((member) => (member.kind === 'repeat' ? member : { item: member, min: 1, max: 1 }));
    const found = new Set<number>();
    const seen = new Set<string>();
    const extend = (end: number, own: readonly number[]): void => {
      if (seen.has(`${end} ${own.join()}`)) return;
      seen.add(`${end} ${own.join()}`);
      const numDifferent = own.filter((count) => count > 0).length;
      if (numDifferent >= min && own.every((count, index) => count >= (counts[index]?.min ?? 0))) found.add(end);
      const total = own.reduce((sum, count) => sum + count, 0);
      if (total >= max) return;
      const places: Places = total === 0 ? new Set([end]) : this.#ends(separator, end);
      for (const [index, member] of counts.entries()) {
        const count = own[index] as number;
        if (count >= (member.max ?? Infinity)) continue;
        for (const next of this.#after(places, member.item)) extend(next, own.with(index, count + 1));
      }
    };
    extend(
      begin,
      counts.map(() => 0),
    );
    return found;
  }

  #runs({ states, min, max = Infinity }: Kind<'automaton'>, begin: number): Places {
    const found = new Set<number>();
    const extend = (state: number, end: number, count: number): void => {
      if (count >= min && states[state]?.isAccepting === true) found.add(end);
      if (count >= max) return;
      for (const { item, target } of states[state]?.edges ?? []) {
        for (const next of this.#ends(item, end)) extend(target, next, count + 1);
      }
    };
    extend(0, begin, 0);
    return found;
  }
}
