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
    budget.spend(10);
    if (budget.isSliceOver()) yield;
    const node = rules.get(name);
    if (node === undefined || productive.has(name) || !canEnd(node, productive, budget)) continue;
    productive.add(name);
    for (const user of users.get(name) ?? []) queue.push(user);
  }
  if (productive.size === rules.size && !(yield* hasEmptyRule(rules, budget))) return { root, rules };
  const pruned = new Map<string, GrammarNode>();
  for (const [name, node] of rules) {
    pruned.set(name, cut(node, productive, budget) ?? nothing);
    if (budget.isSliceOver()) yield;
  }
  return { root, rules: pruned };
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

function* hasEmptyRule(rules: Grammar['rules'], budget: WorkBudget): Sliced<boolean> {
  for (const node of rules.values()) {
    if (hasEmptyPart(node, budget)) return true;
    if (budget.isSliceOver()) yield;
  }
  return false;
}

function hasEmptyPart(node: GrammarNode, budget: WorkBudget): boolean {
  budget.spend(1);
  if (node.kind === 'class') return node.ranges.length === 0;
  if (node.kind === 'choice' && node.alternatives.length === 0) return true;
  return partsOf(node).some((part) => hasEmptyPart(part, budget));
}

/** Whether the members that can occur are enough for the counts. */
function canComplete({ separator, members, min, max = Infinity }: Unordered, isPossible: IsPossible): boolean {
  const counts = members.map(memberOf);
  const possible = counts.filter(({ item, max: most }) => most > 0 && isPossible(item));
  const isRequired = (count: (typeof counts)[number]): boolean => count.min > 0;
  if (counts.filter(isRequired).length > possible.filter(isRequired).length) return false;
  const numRequired = possible.reduce((sum, count) => sum + count.min, 0);
  const numDifferent = possible.filter((count) => count.min > 0).length;
  const numItems = numRequired + Math.max(0, min - numDifferent);
  return possible.length >= min && numItems <= max && (numItems < 2 || isPossible(separator));
}

/** The node without its unproductive parts; undefined when nothing is left. */
function cut(node: GrammarNode, productive: ReadonlySet<string>, budget: WorkBudget): GrammarNode | undefined {
  budget.spend(2);
  const cutPart = (part: GrammarNode): GrammarNode | undefined => cut(part, productive, budget);
  switch (node.kind) {
    case 'literal':
    case 'token':
      return node;
    case 'class':
      return node.ranges.length > 0 ? node : undefined;
    case 'sequence': {
      const items = node.items.map(cutPart);
      return items.includes(undefined) ? undefined : { kind: 'sequence', items: items as GrammarNode[] };
    }
    case 'choice': {
      const alternatives = node.alternatives.flatMap((alternative) => cutPart(alternative) ?? []);
      return alternatives.length > 0 ? { kind: 'choice', alternatives } : undefined;
    }
    case 'repeat': {
      const item = cutPart(node.item);
      if (item !== undefined) return { ...node, item };
      return node.min === 0 ? { kind: 'sequence', items: [] } : undefined;
    }
    case 'rule':
      return productive.has(node.name) ? node : undefined;
    case 'unordered':
      return cutUnordered(node, cutPart);
    case 'automaton': {
      const states = cutStates(node.states, (part) => cutPart(part) !== undefined);
      return states.some(({ isAccepting }) => isAccepting) ? { ...node, states } : undefined;
    }
  }
}

function cutUnordered(
  node: Unordered,
  cutPart: (part: GrammarNode) => GrammarNode | undefined,
): GrammarNode | undefined {
  const parts = new Map([node.separator, ...node.members.map(itemOf)].map((item) => [item, cutPart(item)]));
  if (!canComplete(node, (part) => parts.get(part) !== undefined)) return undefined;
  const members = node.members.flatMap((member): readonly GrammarNode[] => {
    const item = parts.get(itemOf(member));
    if (item === undefined) return [];
    return [member.kind === 'repeat' ? { ...member, item } : item];
  });
  return { ...node, members };
}

function itemOf(member: GrammarNode): GrammarNode {
  return memberOf(member).item;
}

/** The same states without edges whose items never terminate. */
function cutStates(states: readonly AutomatonState[], isPossible: IsPossible): readonly AutomatonState[] {
  return states.map((state) => {
    const edges = state.edges.filter(({ item }) => isPossible(item));
    return edges.length === state.edges.length ? state : { ...state, edges };
  });
}
