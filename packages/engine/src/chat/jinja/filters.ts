/** Filters and methods as in Jinja for Python, where the library lacks them or refuses operands. */
import type { Arguments } from './charges.js';
import { charactersOf, FormattedText } from './formatted-text.js';
import {
  ArrayValue,
  BooleanValue,
  IntegerValue,
  StringValue,
  TupleValue,
  UndefinedValue,
  type Value,
} from './library.js';
import { markedSafe, order } from './operators.js';
import { pythonText } from './texts.js';

/** Filters that convert other values to strings first. */
const textFilters = new Set(['upper', 'lower', 'title', 'capitalize', 'trim', 'replace', 'indent']);
const listFilters = new Set(['map', 'select', 'reject', 'selectattr', 'rejectattr', 'list', 'join', 'first', 'last']);
const othersOfNothing = new Set(['length', 'count', 'items', 'sort', 'unique', 'reverse', 'sum', 'dictsort']);

/** The operand as the library's filter takes it. */
export function filterOperand(name: unknown, operand: Value): Value {
  if (typeof name !== 'string' || typeof operand.value === 'string') {
    const isList =
      typeof name === 'string' && listFilters.has(name) && name !== 'join' && name !== 'first' && name !== 'last';
    if (name === 'selectattr') return new ArrayValue([]);
    return isList ? listOf(charactersOf(operand.value as string)) : operand;
  }
  if (textFilters.has(name)) return new StringValue(pythonText(operand));
  const isNothing = operand.value === undefined || operand.value === false;
  const isSelection = ['map', 'select', 'reject', 'selectattr', 'rejectattr'].includes(name);
  if (
    isNothing &&
    (isSelection || operand.type === 'UndefinedValue') &&
    (listFilters.has(name) || othersOfNothing.has(name))
  ) {
    return new ArrayValue([]);
  }
  if (name === 'selectattr' && Array.isArray(operand.value)) {
    return new ArrayValue((operand.value as Value[]).filter(({ value }) => value instanceof Map));
  }
  if (operand.value instanceof Map && (listFilters.has(name) || name === 'sort')) {
    return new ArrayValue([...operand.value.keys()].map(keyValue));
  }
  return operand;
}

function listOf(texts: readonly string[]): Value {
  return new ArrayValue(texts.map((text) => new StringValue(text)));
}

export function keyValue(key: unknown): Value {
  return typeof key === 'number' ? new IntegerValue(key) : new StringValue(key as string);
}

/** Undefined for a filter of the library. */
export function filtered(name: unknown, operand: Value, args: Arguments): Value | undefined {
  const members = Array.isArray(operand.value) ? (operand.value as Value[]) : undefined;
  switch (name) {
    case 'string':
      return new StringValue(pythonText(operand));
    case 'safe':
      return markedSafe(pythonText(operand));
    case 'count':
      return members === undefined ? undefined : new IntegerValue(members.length);
    case 'min':
    case 'max':
      return members === undefined ? undefined : extreme(members, name === 'min' ? -1 : 1);
    case 'sum':
      return members === undefined
        ? undefined
        : new IntegerValue(members.reduce((sum, { value }) => sum + Number(value), 0));
    case 'trim': {
      const characters = args.positional[0] ?? args.keywords.get('chars');
      return characters === undefined ? undefined : stripped(operand.value as string, characters);
    }
    case 'items':
      return operand.value instanceof Map ? itemsOf(operand.value) : undefined;
    case 'dictsort':
      return operand.value instanceof Map ? sortedItems(operand.value, args) : undefined;
    default:
      return undefined;
  }
}

function sortedItems(content: ReadonlyMap<unknown, unknown>, { positional, keywords }: Arguments): Value {
  const option = (at: number, name: string): unknown => (positional[at] ?? keywords.get(name))?.value;
  const at = option(1, 'by') === 'value' ? 1 : 0;
  const rank = (item: Value): Value => {
    const value = (item.value as readonly Value[])[at] as Value;
    return typeof value.value === 'string' && option(0, 'case_sensitive') !== true
      ? new StringValue(value.value.toLowerCase())
      : value;
  };
  const sorted = [...(itemsOf(content).value as Value[])].sort((a, b) => order(rank(a), rank(b)));
  return new ArrayValue(option(2, 'reverse') === true ? sorted.reverse() : sorted);
}

function extreme(members: readonly Value[], sign: number): Value {
  const [first = new UndefinedValue(undefined), ...others] = members;
  return others.reduce((best, value) => (sign * order(value, best) > 0 ? value : best), first);
}

function stripped(text: string, { value }: Value): Value {
  const characters = new Set(charactersOf(String(value)));
  const all = charactersOf(text);
  const first = all.findIndex((character) => !characters.has(character));
  const last = all.findLastIndex((character) => !characters.has(character));
  return new StringValue(first === -1 ? '' : all.slice(first, last + 1).join(''));
}

function itemsOf(content: ReadonlyMap<unknown, unknown>): Value {
  return new ArrayValue([...content].map(([key, value]) => new TupleValue([keyValue(key), value as Value])));
}

/** Undefined for a method of the library. */
export function methodResult(name: unknown, object: Value, args: Arguments): Value | undefined {
  const { value } = object;
  if (typeof value === 'string') return textMethod(name, value, args);
  if (value instanceof Map) return dictionaryMethod(name, value as ReadonlyMap<unknown, Value>, args);
  if (!Array.isArray(value)) return undefined;
  const members = value as Value[];
  const [first] = args.positional;
  if (name === 'append' && first !== undefined) members.push(first);
  else if (name === 'extend' && Array.isArray(first?.value)) members.push(...(first.value as Value[]));
  else if (name === 'pop') return members.pop() ?? new UndefinedValue(undefined);
  else return undefined;
  return new UndefinedValue(undefined);
}

function dictionaryMethod(
  name: unknown,
  content: ReadonlyMap<unknown, Value>,
  { positional }: Arguments,
): Value | undefined {
  if (name === 'items') return itemsOf(content);
  if (name === 'keys') return new ArrayValue([...content.keys()].map(keyValue));
  if (name !== 'get' || typeof positional[0]?.value !== 'number') return undefined;
  return content.get(positional[0].value) ?? positional[1];
}

function textMethod(name: unknown, text: string, { positional, keywords }: Arguments): Value | undefined {
  const [first, second] = positional;
  const wanted = typeof first?.value === 'string' ? first.value : undefined;
  switch (name) {
    case 'format':
      return new StringValue(new FormattedText(text).format(positional, keywords));
    case 'join':
      return Array.isArray(first?.value)
        ? new StringValue((first.value as Value[]).map((member) => String(member.value)).join(text))
        : undefined;
    case 'find':
      return wanted === undefined || second !== undefined ? undefined : new IntegerValue(offsetIn(text, wanted));
    case 'count':
      return wanted === undefined || wanted === '' ? undefined : new IntegerValue(text.split(wanted).length - 1);
    case 'removeprefix':
      return wanted === undefined
        ? undefined
        : new StringValue(text.startsWith(wanted) ? text.slice(wanted.length) : text);
    case 'removesuffix': {
      const ends = wanted !== undefined && wanted !== '' && text.endsWith(wanted);
      return new StringValue(ends ? text.slice(0, -wanted.length) : text);
    }
    case 'splitlines':
      return listOf(text.replace(/\r\n?|\n$/, (end) => (end === '\n' ? '' : '\n')).split(/\r\n|\r|\n/));
    case 'isdigit':
      return new BooleanValue(/^\p{Nd}+$/u.test(text));
    case 'isalpha':
      return new BooleanValue(/^\p{L}+$/u.test(text));
    default:
      return undefined;
  }
}

/** In code points; -1 if the text does not contain it. */
function offsetIn(text: string, wanted: string): number {
  const at = text.indexOf(wanted);
  return at === -1 ? -1 : charactersOf(text.slice(0, at)).length;
}
