/** The members of an object: declared ones in order, then others, counted as far as the bounds require. */
import { literal, repeat, sequence, type GrammarNode } from '../grammar.js';
import type { SharedRules } from './shared-rules.js';

export interface Members {
  readonly members: readonly {
    readonly isRequired: boolean;
    /** Name and value; undefined when the name is not allowed. */
    readonly node: GrammarNode | undefined;
  }[];
  /** A member with an undeclared name; undefined when there can be none. */
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
  /** The highest count that must be distinguished. */
  readonly #most: number;

  /** @param base prefix of the rule names */
  constructor(rules: SharedRules, base: string, list: Members) {
    this.#rules = rules;
    this.#base = base;
    this.#list = list;
    this.#comma = sequence(literal(','), rules.space);
    this.#most = Math.max(list.minProperties, list.maxProperties === Infinity ? 0 : list.maxProperties + 1);
  }

  /**
   * The members from `index` on, after `count` members were generated (saturating at `most`; at least whether there are
   * any).
   */
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
