/** Removes unproductive parts, so that every prefix that the automaton accepts can be completed. */
import { memberOf, partsOf, type AutomatonState, type Grammar, type GrammarNode } from '../grammar.js';
import type { Sliced } from '@winnow/tensor';
import type { WorkBudget } from '../work-budget.js';
import type { Users } from './left-recursion.js';
import { canRun } from './runs.js';

type Unordered = Extract<GrammarNode, { kind: 'unordered' }>;
type IsPossible = (part: GrammarNode) => boolean;

/** An equivalent grammar without alternatives that never terminate. */
export function* prune({ root, rules }: Grammar, users: Users, budget: WorkBudget): Sliced<Grammar> {
  const productive = new Set<string>();
  const queue = [...rules.keys()];
  for (let name = queue.pop(); name !== undefined; name = queue.pop()) {
    if (budget.isSliceOver()) yield;
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
    case 'token':
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
    case 'unordered':
      return canComplete(node, (part) => canEnd(part, productive, budget));
    case 'automaton':
      return canRun(
        cutStates(node.states, (part) => canEnd(part, productive, budget)),
        node,
        budget,
      );
  }
}

function hasEmptyPart(node: GrammarNode): boolean {
  if (node.kind === 'class') return node.ranges.length === 0;
  return (node.kind === 'choice' && node.alternatives.length === 0) || partsOf(node).some(hasEmptyPart);
}

/** Whether the members that can occur are enough for the counts. */
function canComplete({ separator, members, min, max = Infinity }: Unordered, isPossible: IsPossible): boolean {
  const counts = members.map(memberOf);
  const possible = counts.filter(({ item, max: most }) => most > 0 && isPossible(item));
  if (counts.some((count) => count.min > 0 && !possible.includes(count))) return false;
  const numRequired = possible.reduce((sum, count) => sum + count.min, 0);
  const numDifferent = possible.filter((count) => count.min > 0).length;
  const numItems = numRequired + Math.max(0, min - numDifferent);
  return possible.length >= min && numItems <= max && (numItems < 2 || isPossible(separator));
}

/** The node without its unproductive parts; undefined when nothing is left. */
function cut(node: GrammarNode, productive: ReadonlySet<string>): GrammarNode | undefined {
  switch (node.kind) {
    case 'literal':
    case 'token':
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
    case 'unordered':
      return cutUnordered(node, productive);
    case 'automaton': {
      const states = cutStates(node.states, (part) => cut(part, productive) !== undefined);
      return states.some(({ isAccepting }) => isAccepting) ? { ...node, states } : undefined;
    }
  }
}

function cutUnordered(node: Unordered, productive: ReadonlySet<string>): GrammarNode | undefined {
  if (!canComplete(node, (part) => cut(part, productive) !== undefined)) return undefined;
  const members = node.members.filter((member) => cut(memberOf(member).item, productive) !== undefined);
  return { ...node, members: members.map((member) => cut(member, productive) as GrammarNode) };
}

/** The same states without edges whose items never terminate. */
function cutStates(states: readonly AutomatonState[], isPossible: IsPossible): readonly AutomatonState[] {
  if (states.every(({ edges }) => edges.every(({ item }) => isPossible(item)))) return states;
  return states.map(({ edges, isAccepting }) => ({ isAccepting, edges: edges.filter(({ item }) => isPossible(item)) }));
}
