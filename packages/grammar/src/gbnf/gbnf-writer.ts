/**
 * Writes grammars as GBNF text, which parses to the same grammar. Unordered lists and automata are extensions: see
 * `gbnf-parser.ts`.
 */
import { partsOf, type AutomatonState, type CountRange, type Grammar, type GrammarNode } from '../grammar.js';

/** The text of a grammar; the root rule comes first. */
export function formatGrammar({ root, rules }: Grammar): string {
  const names = [root, ...[...rules.keys()].filter((name) => name !== root)];
  const lines = names.map((name) => `${name} ::= ${format(rules.get(name) as GrammarNode, 'choice')}\n`);
  return lines.join('');
}

/** @param within the enclosing construct, which decides whether parentheses are needed */
function format(node: GrammarNode, within: 'choice' | 'sequence' | 'repeat'): string {
  switch (node.kind) {
    case 'literal':
      return `"${Array.from(node.text, (char) => escape(char, '"\\')).join('')}"`;
    case 'class':
      return `[${node.ranges.map(([first, last]) => formatCharacters(first, last)).join('')}]`;
    case 'token':
      return `${node.isNegated ? '!' : ''}${typeof node.token === 'number' ? `<[${node.token}]>` : node.token}`;
    case 'rule':
      return node.name;
    case 'sequence': {
      if (node.items.length === 0) return '""';
      const text = node.items.map((item) => format(item, 'sequence')).join(' ');
      return within === 'repeat' ? `(${text})` : text;
    }
    case 'choice': {
      if (node.alternatives.length === 0) return '[]';
      const text = node.alternatives.map((alternative) => format(alternative, 'choice')).join(' | ');
      return within === 'choice' && node.alternatives.length === 1 ? text : `(${text})`;
    }
    case 'repeat':
      return `${format(node.item, 'repeat')}${formatCounts(node.min, node.max)}`;
    case 'unordered': {
      const members = node.members.map(formatMember);
      return `&${formatRange(node)}(${[format(node.separator, 'choice'), ...members].join(' | ')})`;
    }
    case 'automaton':
      return `@${formatRange(node)}(${node.states.map(formatState).join(' | ')})`;
  }
}

/** A `repeat` says how often the member may occur; one inside it is not the whole member. */
function formatMember(member: GrammarNode): string {
  let inner = member;
  for (let only = onlyPart(inner); only !== undefined; only = onlyPart(inner)) inner = only;
  const isHidden = member.kind !== 'repeat' && inner.kind === 'repeat';
  return `${isHidden ? '"" ' : ''}${format(member, 'choice')}`;
}

function onlyPart(node: GrammarNode): GrammarNode | undefined {
  const parts = node.kind === 'sequence' || node.kind === 'choice' ? partsOf(node) : [];
  return parts.length === 1 ? parts[0] : undefined;
}

function formatState({ edges, isAccepting }: AutomatonState): string {
  const parts = edges.map(({ item, target }) => `(${format(item, 'choice')}) ${target}`);
  return [...(isAccepting ? ['!'] : []), ...parts].join(' ');
}

function formatRange({ min, max }: CountRange): string {
  return `{${min},${max ?? ''}}`;
}

function formatCounts(min: number, max: number | undefined): string {
  if (max === undefined) return min === 0 ? '*' : min === 1 ? '+' : `{${min},}`;
  if (min === 0 && max === 1) return '?';
  return min === max ? `{${min}}` : `{${min},${max}}`;
}

function formatCharacters(first: number, last: number): string {
  const begin = escape(String.fromCodePoint(first), ']\\-^[');
  if (first === last) return begin;
  return `${begin}-${escape(String.fromCodePoint(last), ']\\-^[')}`;
}

const named: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t', '\\': '\\\\', '"': '\\"' };

function escape(char: string, special: string): string {
  const codePoint = char.codePointAt(0) as number;
  const name = named[char];
  if (name !== undefined && (codePoint < 0x20 || special.includes(char))) return name;
  if (codePoint >= 0x20 && codePoint < 0x7f && !special.includes(char)) return char;
  if (codePoint <= 0xff) return `\\x${codePoint.toString(16).padStart(2, '0').toUpperCase()}`;
  if (codePoint <= 0xffff) return `\\u${codePoint.toString(16).padStart(4, '0').toUpperCase()}`;
  return `\\U${codePoint.toString(16).padStart(8, '0').toUpperCase()}`;
}
