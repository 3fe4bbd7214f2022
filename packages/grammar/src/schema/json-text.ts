/** Grammar nodes for parts of JSON texts. */
import { difference, intersect, normalize, type CodePoints } from '../code-points.js';
import {
  choice,
  literal,
  repeat,
  ruleReference,
  sequence,
  type AutomatonState,
  type CountRange,
  type GrammarNode,
} from '../grammar.js';
import type { Dfa } from '../regular/dfa.js';
import type { Sliced } from '@winnow/tensor';
import type { WorkBudget } from '../work-budget.js';

/** The text of a value, with the members of objects in any order. */
export function valueNode(value: unknown, space: GrammarNode): GrammarNode {
  if (typeof value !== 'object' || value === null) return literal(JSON.stringify(value));
  const separator = sequence(literal(','), space);
  if (Array.isArray(value)) {
    const items = value.flatMap((item, index) => [...(index === 0 ? [] : [separator]), valueNode(item, space)]);
    return sequence(literal('['), space, ...items, space, literal(']'));
  }
  const members = Object.entries(value).map(([name, inner]) =>
    sequence(literal(`${JSON.stringify(name)}:`), space, valueNode(inner, space)),
  );
  const all: GrammarNode = { kind: 'unordered', separator, members, min: members.length };
  return members.length === 0 ? literal('{}') : sequence(literal('{'), space, all, space, literal('}'));
}

/** Characters that stand for themselves in a JSON string. */
const plain: CodePoints = normalize([
  [0x20, 0x21],
  [0x23, 0x5b],
  [0x5d, 0x10ffff],
]);
const escaped: CodePoints = normalize([
  [0, 0x1f],
  [0x22, 0x22],
  [0x5c, 0x5c],
]);

function classOf(text: string): GrammarNode {
  return { kind: 'class', ranges: normalize(Array.from(text, (char) => [char.charCodeAt(0), char.charCodeAt(0)])) };
}

const hex = classOf('0123456789abcdefABCDEF');

/** One character of a string with all its escapes; a character beyond U+FFFF takes two escapes. */
export const charNode: GrammarNode = choice(
  { kind: 'class', ranges: plain },
  sequence(
    literal('\\'),
    choice(
      classOf('"\\/bfnrt'),
      sequence(
        literal('u'),
        choice(
          sequence(classOf('0123456789abcefABCEF'), repeat(hex, 3, 3)),
          sequence(classOf('dD'), classOf('01234567'), repeat(hex, 2, 2)),
        ),
      ),
      sequence(
        literal('u'),
        classOf('dD'),
        classOf('89abAB'),
        repeat(hex, 2, 2),
        literal('\\u'),
        classOf('dD'),
        classOf('cdefCDEF'),
        repeat(hex, 2, 2),
      ),
    ),
  ),
);

/** Whitespace between the tokens of a JSON text. */
export const spaceNodes: Readonly<Record<'single' | 'indented' | 'none', GrammarNode>> = {
  single: choice(literal(''), literal(' ')),
  indented: choice(literal(''), literal(' '), sequence(literal('\n'), repeat(classOf(' \t'), 0, 20))),
  none: literal(''),
};

/** Names of rules by the escapes that they consist of. */
const escapeRules = new WeakMap<ReadonlyMap<string, GrammarNode>, Map<string, string>>();

/** Replaces escapes, of which there may be dozens, by a rule that all automata of the grammar share. */
function withSharedEscapes(nodes: readonly GrammarNode[], rules: Map<string, GrammarNode>): readonly GrammarNode[] {
  const literals = nodes.filter((node) => node.kind === 'literal');
  if (literals.length < 3) return nodes;
  const known = escapeRules.get(rules) ?? new Map<string, string>();
  escapeRules.set(rules, known);
  const key = literals.map(({ text }) => text).join();
  const name = known.get(key) ?? `json-escape-${known.size}`;
  known.set(key, name);
  rules.set(name, { kind: 'choice', alternatives: literals });
  return [...nodes.filter((node) => node.kind !== 'literal'), ruleReference(name)];
}

/** What automata are encoded with. */
export interface Encoding {
  readonly rules: Map<string, GrammarNode>;
  readonly budget: WorkBudget;
  /** How a set of characters is encoded. */
  readonly encode: (on: CodePoints) => readonly GrammarNode[];
}

/** Encodes sets of characters as nodes, each set once. */
function encoder({ rules, budget, encode }: Encoding): (on: CodePoints) => readonly GrammarNode[] {
  const encoded = new Map<CodePoints, readonly GrammarNode[]>();
  return (on) => {
    let nodes = encoded.get(on);
    if (nodes === undefined) {
      budget.spend(50 + 10 * on.length);
      encoded.set(on, (nodes = withSharedEscapes(encode(on), rules)));
    }
    return nodes;
  };
}

/** Rules for the language of an automaton, one per state. @returns the start rule */
export function* automatonRules({ edges, isAccepting }: Dfa, encoding: Encoding, name: string): Sliced<GrammarNode> {
  const { rules, budget } = encoding;
  const encodeOnce = encoder(encoding);
  for (const [state, own] of edges.entries()) {
    budget.spend(20);
    const alternatives: GrammarNode[] = [];
    for (const { on, target } of own) {
      const next = ruleReference(`${name}-${target}`);
      for (const node of encodeOnce(on)) alternatives.push(sequence(node, next));
      budget.spend(10);
      if (budget.isSliceOver()) yield;
    }
    if (isAccepting[state]) alternatives.push(literal(''));
    rules.set(`${name}-${state}`, { kind: 'choice', alternatives });
  }
  return ruleReference(`${name}-0`);
}

/** A node for those texts of an automaton whose number of characters is within the bounds. */
export function* countedNode({ edges, isAccepting }: Dfa, encoding: Encoding, counts: CountRange): Sliced<GrammarNode> {
  const { budget } = encoding;
  const encodeOnce = encoder(encoding);
  const items = new Map<CodePoints, GrammarNode>();
  const itemOf = (on: CodePoints): GrammarNode => {
    let item = items.get(on);
    if (item === undefined) items.set(on, (item = choice(...encodeOnce(on))));
    return item;
  };
  const states: AutomatonState[] = [];
  for (const [state, own] of edges.entries()) {
    budget.spend(20 + 10 * own.length);
    if (budget.isSliceOver()) yield;
    const encoded = own.map(({ on, target }) => ({ item: itemOf(on), target }));
    states.push({ edges: encoded, isAccepting: isAccepting[state] === true });
  }
  return { kind: 'automaton', states, ...counts };
}

/** Unescaped characters. */
export function encodePlain(on: CodePoints): readonly GrammarNode[] {
  return [{ kind: 'class', ranges: on }];
}

/** Characters in a JSON string: escaped where required. */
export function encodeInString(on: CodePoints): readonly GrammarNode[] {
  const nodes: GrammarNode[] = [];
  const own = intersect(on, plain);
  if (own.length > 0) nodes.push({ kind: 'class', ranges: own });
  for (const [first, last] of difference(intersect(on, escaped), own)) {
    for (let code = first; code <= last; code++) {
      nodes.push(literal(JSON.stringify(String.fromCharCode(code)).slice(1, -1)));
    }
  }
  return nodes;
}
