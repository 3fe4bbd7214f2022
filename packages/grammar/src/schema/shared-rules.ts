/** Rules that schemas of one grammar share: blanks, texts, characters, and whatever has a name of its own. */
import { CapacityError } from '@winnow/tensor';
import { literal, repeat, ruleReference, sequence, type GrammarNode } from '../grammar.js';
import type { Dfa } from '../regular/dfa.js';
import { automatonRules, charNode, spaceNodes, type encodePlain } from './json-text.js';

/** Most rules that a schema may come to. */
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

  /** @throws {CapacityError} when there are too many */
  set(name: string, node: GrammarNode): void {
    this.#checkSize(this.#rules.size + 1);
    this.#rules.set(name, node);
  }

  /** A reference to a rule, which is made when it is not there yet. */
  shared(name: string, make: () => GrammarNode): GrammarNode {
    if (!this.#rules.has(name)) {
      this.set(name, literal('')); // its place, for rules that refer to it while it is made
      this.set(name, make());
    }
    return ruleReference(name);
  }

  /** What the automaton accepts. @param name begins the names of its rules */
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
