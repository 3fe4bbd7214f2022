/** A slow, simple recognizer: the possible ends of a rule in a text, by sets and fixpoints over characters. */
import type { Grammar, GrammarNode } from '../src/index.js';

export function recognizes({ root, rules }: Grammar, text: string): boolean {
  const chars = Array.from(text, (char) => char.codePointAt(0) as number);
  const memo = new Map<string, Set<number>>(); // ends of a rule that starts at a position
  let changed = true;

  function ends(node: GrammarNode, begin: number): Set<number> {
    switch (node.kind) {
      case 'literal': {
        const wanted = Array.from(node.text, (char) => char.codePointAt(0));
        return wanted.every((char, i) => chars[begin + i] === char) ? new Set([begin + wanted.length]) : new Set();
      }
      case 'class': {
        const char = chars[begin];
        const isIn = char !== undefined && node.ranges.some(([first, last]) => char >= first && char <= last);
        return isIn ? new Set([begin + 1]) : new Set();
      }
      case 'sequence':
        return node.items.reduce((from, item) => after(from, item), new Set([begin]));
      case 'choice':
        return new Set(node.alternatives.flatMap((alternative) => [...ends(alternative, begin)]));
      case 'repeat': {
        let from = new Set([begin]);
        for (let count = 0; count < node.min; count++) from = after(from, node.item);
        const all = new Set(from);
        for (let count = node.min; count < (node.max ?? Infinity) && from.size > 0; count++) {
          from = new Set([...after(from, node.item)].filter((end) => !all.has(end)));
          for (const end of from) all.add(end);
        }
        return all;
      }
      case 'rule': {
        const key = `${begin} ${node.name}`;
        const known = memo.get(key);
        if (known !== undefined) return known;
        memo.set(key, new Set());
        return memo.get(key) as Set<number>;
      }
    }
  }
  const after = (from: ReadonlySet<number>, node: GrammarNode): Set<number> =>
    new Set([...from].flatMap((begin) => [...ends(node, begin)]));

  ends({ kind: 'rule', name: root }, 0);
  while (changed) {
    changed = false;
    for (const [key, known] of memo) {
      const [begin, name] = key.split(' ') as [string, string];
      for (const end of ends(rules.get(name) as GrammarNode, Number(begin))) {
        if (!known.has(end)) changed = true;
        known.add(end);
      }
    }
  }
  return memo.get(`0 ${root}`)?.has(chars.length) === true;
}
