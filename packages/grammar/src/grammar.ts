/**
 * The grammar AST: rules over characters. GBNF is parsed to it, JSON schemas are converted to it, and it is compiled to
 * a network.
 */

/** First and last code point of a range, both included. */
export type CodePointRange = readonly [first: number, last: number];

/** A node of a rule. */
export type GrammarNode =
  /** A literal. */
  | { readonly kind: 'literal'; readonly text: string }
  /** One character of ascending, non-adjacent ranges. */
  | { readonly kind: 'class'; readonly ranges: readonly CodePointRange[] }
  /** A sequence; an empty one matches the empty text. */
  | { readonly kind: 'sequence'; readonly items: readonly GrammarNode[] }
  /** Alternatives; an empty list matches nothing. */
  | { readonly kind: 'choice'; readonly alternatives: readonly GrammarNode[] }
  /** Repeated `min` to `max` times; unbounded without `max`. */
  | { readonly kind: 'repeat'; readonly item: GrammarNode; readonly min: number; readonly max?: number }
  /** A reference to a rule. */
  | { readonly kind: 'rule'; readonly name: string }
  /** A token by its id, or by its whole text such as `<think>`; or any other token with text. */
  | { readonly kind: 'token'; readonly token: number | string; readonly isNegated: boolean }
  /**
   * Members in any order, separated: each once, or as often as it says if it is a `repeat`. At least `min` different
   * ones, at most `max` in all.
   */
  | {
      readonly kind: 'unordered';
      readonly separator: GrammarNode;
      readonly members: readonly GrammarNode[];
      readonly min: number;
      readonly max?: number;
    }
  /** From `min` to `max` items that lead from the first state to an accepting one. */
  | {
      readonly kind: 'automaton';
      readonly states: readonly AutomatonState[];
      readonly min: number;
      readonly max?: number;
    };

/** Bounds of a count. */
export interface CountRange {
  readonly min: number;
  readonly max?: number;
}

/** A state of an automaton whose edges are items that are not empty. */
export interface AutomatonState {
  readonly edges: readonly { readonly item: GrammarNode; readonly target: number }[];
  readonly isAccepting: boolean;
}

/** Rules by name, and the one that a whole text has to match. */
export interface Grammar {
  readonly root: string;
  readonly rules: ReadonlyMap<string, GrammarNode>;
  /** Where a rule comes from, for errors: a schema and a place in it. Default: the grammar and the rule. */
  readonly originOf?: ((rule: string) => Origin) | undefined;
}

/** A place in the source of a grammar. */
export interface Origin {
  readonly source: string;
  readonly field: string;
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

/** The children of a node. */
export function partsOf(node: GrammarNode): readonly GrammarNode[] {
  switch (node.kind) {
    case 'sequence':
      return node.items;
    case 'choice':
      return node.alternatives;
    case 'repeat':
      return [node.item];
    case 'unordered':
      return [node.separator, ...node.members];
    case 'automaton':
      return node.states.flatMap(({ edges }) => edges.map(({ item }) => item));
    case 'literal':
    case 'class':
    case 'token':
    case 'rule':
      return [];
  }
}

/** How often a member of an unordered list may occur. */
export function memberOf(node: GrammarNode): {
  readonly item: GrammarNode;
  readonly min: number;
  readonly max: number;
} {
  if (node.kind !== 'repeat') return { item: node, min: 1, max: 1 };
  return { item: node.item, min: node.min, max: node.max ?? Infinity };
}

export function ruleReference(name: string): GrammarNode {
  return { kind: 'rule', name };
}
