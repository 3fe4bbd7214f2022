/** Rules shared by the schemas of one grammar: whitespace, strings, characters, and named rules. */
import { CapacityError } from '@winnow/tensor';
import { literal, repeat, ruleReference, sequence, type GrammarNode } from '../grammar.js';
import type { Dfa } from '../regular/dfa.js';
import { automatonRules, charNode, spaceNodes, type encodePlain } from './json-text.js';

/** Maximum number of rules that a schema may expand to. */
const maxRules = 50_000;

export class SharedRules {
  readonly space: GrammarNode;
  readonly #rules: Map<string, GrammarNode>;

  constructor(rules: Map<string, GrammarNode>, whitespace: keyof typeof spaceNodes) {
    this.#rules = rules;
    this.space = this.shared('json-space', () => spaceNodes[whitespace]);
  }

  string(): GrammarNode {
    return this.shared('json-string', () => sequence(literal('"'), repeat(this.char(), 0), literal('"')));
  }

  char(): GrammarNode {
    return this.shared('json-char', () => charNode);
  }

  /** @throws {CapacityError} when there are too many rules */
  set(name: string, node: GrammarNode): void {
    this.#checkSize(this.#rules.size + 1);
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
  automaton(dfa: Dfa, name: string, encode: typeof encodePlain): GrammarNode {
    const node = automatonRules(dfa, this.#rules, name, encode);
    this.#checkSize(this.#rules.size);
    return node;
  }

  #checkSize(needed: number): void {
    if (needed <= maxRules) return;
    throw new CapacityError({ resource: 'rules of a JSON schema', needed, available: maxRules, unit: 'rules' });
  }
}
