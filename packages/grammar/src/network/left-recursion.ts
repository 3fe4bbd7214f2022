/** Finds nullable rules, and rejects left recursion. */
import { FormatError, type Sliced } from '@winnow/tensor';
import { memberOf, partsOf, type GrammarNode } from '../grammar.js';
import type { WorkBudget } from '../work-budget.js';
import { maxNetworkStates } from './states.js';

type Rules = ReadonlyMap<string, GrammarNode>;
type IsNullable = (name: string) => boolean;
/** By rule: the rules that refer to it. */
export type Users = ReadonlyMap<string, ReadonlySet<string>>;

/**
 * A rule that reaches itself before any character would recurse forever.
 * @throws {FormatError} for such a rule, and for one that is missing
 */
export function* checkLeftRecursion(
  rules: Rules,
  users: Users,
  isNullable: IsNullable,
  budget: WorkBudget,
): Sliced<void> {
  for (const [used, [name]] of users) {
    budget.spend(5);
    if (budget.isSliceOver()) yield;
    if (!rules.has(used)) fail(used, `expected a definition of this rule, which ${name as string} uses`);
  }
  const firsts = new Map<string, readonly string[]>();
  for (const [name, node] of rules) {
    budget.place = name;
    budget.spend(5);
    const found = new Set<string>();
    collectFirsts(node, isNullable, found, budget);
    firsts.set(name, [...found]);
    if (budget.isSliceOver()) yield;
  }
  const done = new Set<string>();
  for (const name of rules.keys()) if (!done.has(name)) yield* searchCycle(name, firsts, done, budget);
}

/** Visits the rules that a rule reaches before any character, each once. */
function* searchCycle(
  start: string,
  firsts: ReadonlyMap<string, readonly string[]>,
  done: Set<string>,
  budget: WorkBudget,
): Sliced<void> {
  const path: { name: string; next: number }[] = [{ name: start, next: 0 }];
  const onPath = new Set([start]);
  while (path.length > 0) {
    budget.spend(5);
    if (budget.isSliceOver()) yield;
    const top = path[path.length - 1] as { name: string; next: number };
    const first = (firsts.get(top.name) as readonly string[])[top.next++];
    if (first === undefined) {
      path.pop();
      onPath.delete(top.name);
      done.add(top.name);
    } else if (onPath.has(first)) {
      const cycle = path.slice(path.findIndex((entry) => entry.name === first)).map((entry) => entry.name);
      fail(first, `expected rules that begin with a character, got left recursion: ${[...cycle, first].join(' > ')}`);
    } else if (!done.has(first)) {
      path.push({ name: first, next: 0 });
      onPath.add(first);
    }
  }
}

function fail(field: string, message: string): never {
  throw new FormatError({ source: 'grammar', field, message });
}

/** The rules that match the empty text. */
export function* nullableRules(rules: Rules, users: Users, budget: WorkBudget): Sliced<IsNullable> {
  const nullable = new Set<string>();
  const isNullable: IsNullable = (name) => nullable.has(name);
  // users of a rule that turns out to be nullable are visited again
  const queue = [...rules.keys()];
  for (let name = queue.pop(); name !== undefined; name = queue.pop()) {
    budget.place = name;
    budget.spend(5);
    if (budget.isSliceOver()) yield;
    if (nullable.has(name) || !canBeEmpty(rules.get(name) as GrammarNode, isNullable, budget)) continue;
    nullable.add(name);
    for (const user of users.get(name) ?? []) queue.push(user);
  }
  return isNullable;
}

/** By rule: the rules that refer to it. */
export function* usersOf(rules: Rules, budget: WorkBudget): Sliced<Users> {
  const users = new Map<string, Set<string>>();
  for (const [name, node] of rules) {
    budget.place = name;
    budget.spend(5);
    if (budget.isSliceOver()) yield;
    for (const used of referencesOf(node, budget)) {
      const known = users.get(used);
      if (known === undefined) users.set(used, new Set([name]));
      else known.add(name);
    }
  }
  return users;
}

export function canBeEmpty(node: GrammarNode, isNullable: IsNullable, budget: WorkBudget): boolean {
  budget.spend(1);
  switch (node.kind) {
    case 'literal':
      return node.text === '';
    case 'class':
    case 'token':
      return false;
    case 'sequence':
      return node.items.every((item) => canBeEmpty(item, isNullable, budget));
    case 'choice':
      return node.alternatives.some((alternative) => canBeEmpty(alternative, isNullable, budget));
    case 'repeat':
      return node.min === 0 || canBeEmpty(node.item, isNullable, budget);
    case 'rule':
      return isNullable(node.name);
    case 'unordered':
      return node.min === 0 && node.members.every((member) => memberOf(member).min === 0);
    case 'automaton':
      return node.min === 0 && node.states[0]?.isAccepting === true;
  }
}

/** Collects the rules that can be reached before any character. @returns whether the node can be empty */
function collectFirsts(node: GrammarNode, isNullable: IsNullable, found: Set<string>, budget: WorkBudget): boolean {
  budget.spend(1);
  const collect = (part: GrammarNode): boolean => collectFirsts(part, isNullable, found, budget);
  switch (node.kind) {
    case 'sequence':
      return node.items.every(collect);
    case 'choice':
      return node.alternatives.reduce((isEmpty, alternative) => collect(alternative) || isEmpty, false);
    case 'repeat':
      return node.max === 0 || collect(node.item) || node.min === 0;
    case 'rule':
      found.add(node.name);
      return isNullable(node.name);
    case 'unordered':
      for (const member of node.members) collect(memberOf(member).item);
      return canBeEmpty(node, isNullable, budget);
    case 'automaton':
      for (const { item } of node.states[0]?.edges ?? []) collect(item);
      return canBeEmpty(node, isNullable, budget);
    case 'literal':
    case 'class':
    case 'token':
      return canBeEmpty(node, isNullable, budget);
  }
}

/**
 * The rules that a node refers to.
 * @throws {CapacityError} for more parts than a network has states, so that no rule takes long
 */
function referencesOf(node: GrammarNode, budget: WorkBudget): ReadonlySet<string> {
  const found = new Set<string>();
  let numParts = 0;
  collect(node);
  return found;

  function collect(part: GrammarNode): void {
    budget.spend(1);
    if (++numParts > maxNetworkStates) budget.refuse('parts of a rule', numParts, maxNetworkStates, 'parts');
    if (part.kind === 'rule') found.add(part.name);
    for (const inner of partsOf(part)) collect(inner);
  }
}
