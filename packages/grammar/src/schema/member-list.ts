/** The members of an object: declared ones in their order, then others, counted as far as bounds ask for it. */
import { literal, repeat, sequence, type GrammarNode } from '../grammar.js';
import type { SharedRules } from './shared-rules.js';

export interface Members {
  readonly members: readonly {
    readonly isRequired: boolean;
    /** Name and value; undefined when the name is not allowed. */
    readonly node: GrammarNode | undefined;
  }[];
  /** A member with another name; undefined when there may be none. */
  readonly others: GrammarNode | undefined;
  readonly minProperties: number;
  /** May be infinite. */
  readonly maxProperties: number;
}

export class MemberList {
  readonly #rules: SharedRules;
  readonly #base: string;
  readonly #list: Members;
  readonly #comma: GrammarNode;
  /** The highest count that makes a difference. */
  readonly #most: number;

  /** @param base begins the names of the rules */
  constructor(rules: SharedRules, base: string, list: Members) {
    this.#rules = rules;
    this.#base = base;
    this.#list = list;
    this.#comma = sequence(literal(','), rules.space);
    this.#most = Math.max(list.minProperties, list.maxProperties === Infinity ? 0 : list.maxProperties + 1);
  }

  /** From member `index` on, when `count` have been written (counted up to `most`, at least whether there are any). */
  from(index: number, count: number): GrammarNode {
    return this.#rules.shared(`${this.#base}-${index}-${count}`, () => {
      const next = Math.min(count + 1, Math.max(1, this.#most));
      const member = this.#list.members[index];
      if (member === undefined) return this.#end(count, next);
      const alternatives: GrammarNode[] = [];
      if (member.node !== undefined && count < this.#list.maxProperties) {
        alternatives.push(sequence(this.#separate(count, member.node), this.from(index + 1, next)));
      }
      if (!member.isRequired) alternatives.push(this.from(index + 1, count));
      return { kind: 'choice', alternatives };
    });
  }

  #end(count: number, next: number): GrammarNode {
    const { others, minProperties, maxProperties } = this.#list;
    const alternatives: GrammarNode[] = count >= minProperties ? [literal('')] : [];
    if (others !== undefined && count < maxProperties && next >= minProperties) {
      const room = maxProperties === Infinity ? undefined : maxProperties - count - 1;
      alternatives.push(sequence(this.#separate(count, others), repeat(sequence(this.#comma, others), 0, room)));
    }
    return { kind: 'choice', alternatives };
  }

  #separate(count: number, node: GrammarNode): GrammarNode {
    return count === 0 ? node : sequence(this.#comma, node);
  }
}
