/** Rules shared by the schemas of one grammar: whitespace, strings, characters, and named rules. */
import { literal, partsOf, repeat, ruleReference, sequence, type CountRange, type GrammarNode } from '../grammar.js';
import { maxNetworkStates } from '../network/states.js';
import type { Dfa } from '../regular/dfa.js';
import type { Sliced } from '@winnow/tensor';
import type { WorkBudget } from '../work-budget.js';
import { automatonRules, charNode, countedNode, spaceNodes, type Encoding, type encodePlain } from './json-text.js';

/** Maximum number of rules that a schema may expand to. */
const maxRules = 50_000;

export class SharedRules {
  readonly space: GrammarNode;
  readonly budget: WorkBudget;
  readonly #rules: Map<string, GrammarNode>;
  #numStates = 0;

  constructor(rules: Map<string, GrammarNode>, whitespace: keyof typeof spaceNodes, budget: WorkBudget) {
    this.budget = budget;
    this.#rules = rules;
    this.space = this.shared('json-space', () => spaceNodes[whitespace]);
  }

  string(): GrammarNode {
    return this.shared('json-string', () => sequence(literal('"'), repeat(this.char(), 0), literal('"')));
  }

  char(): GrammarNode {
    return this.shared('json-char', () => charNode);
  }

  /** @throws {CapacityError} when there are too many rules, or too many states to expand them to */
  set(name: string, node: GrammarNode): void {
    this.#checkSize(this.#rules.size + 1);
    this.#countStates(node, 1);
    this.#rules.set(name, node);
  }

  /** Returns a reference to a rule, which is created on first use. */
  shared(name: string, make: () => GrammarNode): GrammarNode {
    if (!this.#rules.has(name)) {
      this.set(name, literal('')); // reserves the name for rules that refer to it before it is complete
      this.set(name, make());
    }
    return ruleReference(name);
  }

  /** A node for the language of the automaton. @param name prefix of its rule names */
  *automaton(dfa: Dfa, name: string, encode: typeof encodePlain): Sliced<GrammarNode> {
    this.#checkSize(this.#rules.size + dfa.edges.length);
    return yield* automatonRules(dfa, this.#encoding(encode), name);
  }

  /** A node for those texts of the automaton whose number of characters is within the bounds. */
  countedAutomaton(dfa: Dfa, counts: CountRange, encode: typeof encodePlain): Sliced<GrammarNode> {
    return countedNode(dfa, this.#encoding(encode), counts);
  }

  #encoding(encode: typeof encodePlain): Encoding {
    return { rules: this.#rules, budget: this.budget, encode };
  }

  #checkSize(needed: number): void {
    this.budget.spend(10);
    if (needed > maxRules) this.budget.refuse('rules', needed, maxRules, 'rules');
  }

  /**
   * Counts a lower bound of the states of a node that is repeated so many times. The network counts exactly, but does not
   * know the places in the schema.
   */
  #countStates(node: GrammarNode, times: number): void {
    this.budget.spend(1);
    if (node.kind === 'repeat') return this.#countStates(node.item, times * (node.max ?? node.min + 1));
    for (const part of partsOf(node)) this.#countStates(part, times);
    if (node.kind === 'literal') this.#numStates += times * node.text.length;
    if (node.kind === 'class' || node.kind === 'token' || node.kind === 'rule') this.#numStates += times;
    if (this.#numStates <= maxNetworkStates) return;
    this.budget.refuse('states', this.#numStates, maxNetworkStates, 'states');
  }
}
