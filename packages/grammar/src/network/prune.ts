/** Removes unproductive parts, so that every prefix that the automaton accepts can be completed. */
import type { Grammar, GrammarNode } from '../grammar.js';
import type { WorkBudget } from '../work-budget.js';
import type { Users } from './left-recursion.js';

/** An equivalent grammar without alternatives that never terminate. */
export function prune({ root, rules }: Grammar, users: Users, budget: WorkBudget): Grammar {
  const productive = new Set<string>();
  const queue = [...rules.keys()];
  for (let name = queue.pop(); name !== undefined; name = queue.pop()) {
    const node = rules.get(name);
    if (node === undefined || productive.has(name) || !canEnd(node, productive, budget)) continue;
    productive.add(name);
    for (const user of users.get(name) ?? []) queue.push(user);
  }
  if (productive.size === rules.size && ![...rules.values()].some(hasEmptyPart)) return { root, rules };
  return { root, rules: new Map([...rules].map(([name, node]) => [name, cut(node, productive) ?? nothing])) };
}

const nothing: GrammarNode = { kind: 'choice', alternatives: [] };

function canEnd(node: GrammarNode, productive: ReadonlySet<string>, budget: WorkBudget): boolean {
  budget.spend(1);
  switch (node.kind) {
    case 'literal':
      return true;
    case 'class':
      return node.ranges.length > 0;
    case 'sequence':
      return node.items.every((item) => canEnd(item, productive, budget));
    case 'choice':
      return node.alternatives.some((alternative) => canEnd(alternative, productive, budget));
    case 'repeat':
      return node.min === 0 || canEnd(node.item, productive, budget);
    case 'rule':
      return productive.has(node.name);
  }
}

function hasEmptyPart(node: GrammarNode): boolean {
  switch (node.kind) {
    case 'class':
      return node.ranges.length === 0;
    case 'sequence':
      return node.items.some(hasEmptyPart);
    case 'choice':
      return node.alternatives.length === 0 || node.alternatives.some(hasEmptyPart);
    case 'repeat':
      return hasEmptyPart(node.item);
    case 'literal':
    case 'rule':
      return false;
  }
}

/** Undefined when nothing is left. */
function cut(node: GrammarNode, productive: ReadonlySet<string>): GrammarNode | undefined {
  switch (node.kind) {
    case 'literal':
      return node;
    case 'class':
      return node.ranges.length > 0 ? node : undefined;
    case 'sequence': {
      const items = node.items.map((item) => cut(item, productive));
      return items.includes(undefined) ? undefined : { kind: 'sequence', items: items as GrammarNode[] };
    }
    case 'choice': {
      const alternatives = node.alternatives.flatMap((alternative) => cut(alternative, productive) ?? []);
      return alternatives.length > 0 ? { kind: 'choice', alternatives } : undefined;
    }
    case 'repeat': {
      const item = cut(node.item, productive);
      if (item !== undefined) return { ...node, item };
      return node.min === 0 ? { kind: 'sequence', items: [] } : undefined;
    }
    case 'rule':
      return productive.has(node.name) ? node : undefined;
  }
}
