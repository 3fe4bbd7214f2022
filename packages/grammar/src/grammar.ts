/** What a grammar is: rules over characters. Texts are parsed to it, schemas converted to it; compile.ts makes it run. */

/** First and last code point of a range, both included. */
export type CodePointRange = readonly [first: number, last: number];

/** A part of a rule. */
export type GrammarNode =
  /** These characters. */
  | { readonly kind: 'literal'; readonly text: string }
  /** One character of ascending ranges that do not touch. */
  | { readonly kind: 'class'; readonly ranges: readonly CodePointRange[] }
  /** One after the other; none: the empty text. */
  | { readonly kind: 'sequence'; readonly items: readonly GrammarNode[] }
  /** Any of them; none: nothing at all matches. */
  | { readonly kind: 'choice'; readonly alternatives: readonly GrammarNode[] }
  /** From `min` to `max` times; without `max` as often as you like. */
  | { readonly kind: 'repeat'; readonly item: GrammarNode; readonly min: number; readonly max?: number }
  /** What the rule of this name matches. */
  | { readonly kind: 'rule'; readonly name: string };

/** Rules by name, and the one that a whole text has to match. */
export interface Grammar {
  readonly root: string;
  readonly rules: ReadonlyMap<string, GrammarNode>;
}

export const maxCodePoint = 0x10ffff;

export function literal(text: string): GrammarNode {
  return { kind: 'literal', text };
}

export function sequence(...items: readonly GrammarNode[]): GrammarNode {
  return items.length === 1 ? (items[0] as GrammarNode) : { kind: 'sequence', items };
}

export function choice(...alternatives: readonly GrammarNode[]): GrammarNode {
  return alternatives.length === 1 ? (alternatives[0] as GrammarNode) : { kind: 'choice', alternatives };
}

export function repeat(item: GrammarNode, min: number, max?: number): GrammarNode {
  return { kind: 'repeat', item, min, ...(max === undefined ? {} : { max }) };
}

export function optional(item: GrammarNode): GrammarNode {
  return repeat(item, 0, 1);
}

export function ruleReference(name: string): GrammarNode {
  return { kind: 'rule', name };
}
