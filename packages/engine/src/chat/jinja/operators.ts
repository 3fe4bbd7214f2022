/** Operators and members as in Python, where the library differs or refuses operands. */
import { charactersOf, FormattedText } from './formatted-text.js';
import { ArrayValue, BooleanValue, IntegerValue, StringValue, UndefinedValue, type Value } from './library.js';
import { pythonText } from './texts.js';

/**
 * Strings that the filter `safe` has marked as safe HTML: other strings are escaped when they are concatenated with
 * one.
 */
const safeTexts = new WeakSet<Value>();

export function markedSafe(text: string): Value {
  const value = new StringValue(text);
  safeTexts.add(value);
  return value;
}

const htmlEscapes: ReadonlyMap<string, string> = new Map([
  ['&', '&amp;'],
  ['<', '&lt;'],
  ['>', '&gt;'],
  ["'", '&#39;'],
  ['"', '&#34;'],
]);

function escapedHtml(value: Value): string {
  const text = value.value as string;
  return safeTexts.has(value) ? text : text.replaceAll(/[&<>'"]/g, (found) => htmlEscapes.get(found) as string);
}

/** Undefined where the library does the same as Python. @throws {Error} where Python has a type error */
export function operated(operator: string, left: Value, right: Value): Value | undefined {
  switch (operator) {
    case '==':
      return new BooleanValue(isEqual(left, right));
    case '!=':
      return new BooleanValue(!isEqual(left, right));
    case 'in':
      return new BooleanValue(contains(right, left));
    case 'not in':
      return new BooleanValue(!contains(right, left));
    case '~':
      return new StringValue(pythonText(left) + pythonText(right));
    case '+':
      return added(left, right);
    case '*':
      return repeated(left, right) ?? repeated(right, left);
    case '%':
      return typeof left.value === 'string'
        ? new StringValue(new FormattedText(left.value).percent(right))
        : modulo(left, right);
    case '<':
      return compared(left, right, (order) => order < 0);
    case '>':
      return compared(left, right, (order) => order > 0);
    case '<=':
      return compared(left, right, (order) => order <= 0);
    case '>=':
      return compared(left, right, (order) => order >= 0);
    default:
      return undefined;
  }
}

function isNumber({ value }: Value): boolean {
  return typeof value === 'number' || typeof value === 'boolean';
}

/** Containers are equal if their members are, and true is 1. */
export function isEqual(left: Value, right: Value): boolean {
  const [a, b] = [left.value, right.value];
  if (Array.isArray(a) && Array.isArray(b)) {
    const [first, second] = [a as Value[], b as Value[]];
    const isSameKind = (left.type === 'TupleValue') === (right.type === 'TupleValue');
    return (
      isSameKind && first.length === second.length && first.every((member, at) => isEqual(member, second[at] as Value))
    );
  }
  if (a instanceof Map && b instanceof Map) {
    const second = b as Map<unknown, Value>;
    const isMember = ([key, member]: [unknown, Value]): boolean => {
      const other = second.get(key);
      return other !== undefined && isEqual(member, other);
    };
    return a.size === b.size && [...(a as Map<unknown, Value>)].every(isMember);
  }
  if (a === undefined || b === undefined) {
    return a === b && (left.type === 'NullValue') === (right.type === 'NullValue');
  }
  return isNumber(left) && isNumber(right) ? Number(a) === Number(b) : a === b;
}

function contains(container: Value, member: Value): boolean {
  const { value } = container;
  if (Array.isArray(value)) return (value as Value[]).some((item) => isEqual(item, member));
  if (value instanceof Map) return value.has(member.value);
  if (typeof value === 'string' && typeof member.value === 'string') return value.includes(member.value);
  if (container.type === 'UndefinedValue') return false;
  throw new Error(`'in' needs a container, got ${container.type}`);
}

function added(left: Value, right: Value): Value | undefined {
  if (isNumber(left) && isNumber(right)) {
    const isBoolean = typeof left.value === 'boolean' || typeof right.value === 'boolean';
    return isBoolean ? new IntegerValue(Number(left.value) + Number(right.value)) : undefined;
  }
  if (typeof left.value === 'string' && typeof right.value === 'string') {
    const isSafe = safeTexts.has(left) || safeTexts.has(right);
    return isSafe ? markedSafe(escapedHtml(left) + escapedHtml(right)) : new StringValue(left.value + right.value);
  }
  if (Array.isArray(left.value) && Array.isArray(right.value)) {
    return new ArrayValue([...(left.value as Value[]), ...(right.value as Value[])]);
  }
  throw new Error(`'+' needs two strings, two lists or two numbers, got ${left.type} and ${right.type}`);
}

/** The length of the result has already been charged to the budget. */
function repeated({ value }: Value, { value: count, type }: Value): Value | undefined {
  if (typeof count !== 'number' || type !== 'IntegerValue') return undefined;
  if (typeof value === 'string') return new StringValue(value.repeat(Math.max(0, count)));
  if (!Array.isArray(value)) return undefined;
  return new ArrayValue(Array.from({ length: Math.max(0, count) }, () => value as Value[]).flat());
}

/** The sign is that of the divisor. */
function modulo(left: Value, right: Value): Value | undefined {
  if (left.type !== 'IntegerValue' || right.type !== 'IntegerValue') return undefined;
  const [a, b] = [left.value as number, right.value as number];
  if (b === 0) throw new Error('division by zero');
  return new IntegerValue(a - b * Math.floor(a / b));
}

function compared(left: Value, right: Value, isWanted: (order: number) => boolean): Value {
  return new BooleanValue(isWanted(order(left, right)));
}

/** Negative, zero or positive, as for sorting. @throws {Error} for values that Python does not compare */
export function order(left: Value, right: Value): number {
  if (isNumber(left) && isNumber(right)) return Number(left.value) - Number(right.value);
  const [a, b] = [left.value, right.value];
  if (typeof a === 'string' && typeof b === 'string') return byCodePoints(a, b);
  if (Array.isArray(a) && Array.isArray(b)) {
    const [first, second] = [a as Value[], b as Value[]];
    for (let at = 0; at < Math.min(first.length, second.length); at++) {
      const difference = order(first[at] as Value, second[at] as Value);
      if (difference !== 0) return difference;
    }
    return first.length - second.length;
  }
  throw new Error(`cannot compare ${left.type} and ${right.type}`);
}

function byCodePoints(a: string, b: string): number {
  for (let at = 0; at < Math.min(a.length, b.length); at++) {
    if (a[at] !== b[at]) return (a.codePointAt(at) as number) - (b.codePointAt(at) as number);
  }
  return a.length - b.length;
}

/** Methods of dictionaries, which come before members of the same name when they are written with a dot. */
const dictionaryMethods = new Set([
  'clear',
  'copy',
  'get',
  'items',
  'keys',
  'pop',
  'popitem',
  'setdefault',
  'update',
  'values',
]);

/**
 * Undefined where the library does the same as Python.
 * @param isAttribute written with a dot
 * @throws {Error} for members of undefined values
 */
export function memberOf(object: Value, key: Value, isAttribute: boolean): Value | undefined {
  const nothing = new UndefinedValue(undefined);
  if (object.type === 'UndefinedValue') throw new Error(`undefined has no member ${pythonText(key)}`);
  const { value } = object;
  if (value instanceof Map) {
    if (isAttribute && dictionaryMethods.has(key.value as string)) return object.builtins.get(key.value as string);
    if (typeof key.value === 'string') return undefined;
    return (value as Map<unknown, Value>).get(key.value) ?? nothing;
  }
  if (typeof key.value === 'string') return isAttribute || typeof value !== 'object' ? undefined : nothing;
  if (typeof value === 'string' && typeof key.value === 'number') {
    const character = charactersOf(value).at(key.value);
    return character === undefined ? nothing : new StringValue(character);
  }
  return Array.isArray(value) && typeof key.value === 'number' ? undefined : nothing;
}
