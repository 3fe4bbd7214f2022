/** The difference of two sets of facts, or a subset of it where facts cannot express all of it. */
import type { Sliced } from '@winnow/tensor';
import { escapeRegex } from '../regular/regex.js';
import {
  both,
  declaredNames,
  itemOf,
  propertyOf,
  type Bound,
  type Conjunction,
  type Facts,
  type JsonSchema,
  type Kind,
  type Located,
  type Pattern,
} from './facts.js';
import { filtered } from './lists.js';
import { derivedPath } from './located.js';
import { kindOf, meets } from './valid.js';
import type { Resolver } from './resolve.js';

/** The negation of a conjunction. */
function negationOf(conjunction: Conjunction): Located {
  const [first, ...others] = conjunction.map((part) => part.path);
  const path = derivedPath(first as string, 'not', others.join(' '));
  return { schema: { not: { allOf: conjunction.map(({ schema }) => schema) } } as JsonSchema, path };
}

/**
 * @param b facts of a superset of what its schema accepts
 * @param wide the resolver of supersets
 */
export function* without(a: Facts, b: Facts, wide: Resolver): Sliced<readonly Facts[]> {
  if (a.values !== undefined) {
    const values = yield* filtered(a.values, function* (value) {
      return !(yield* meets(value, b, wide));
    });
    return values.length === 0 ? [] : [{ ...a, values }];
  }
  const pieces: Facts[] = [];
  const others = [...a.kinds].filter((kind) => !b.kinds.has(kind));
  add(pieces, a, others);
  const common = [...a.kinds].filter((kind) => b.kinds.has(kind));
  if (b.values !== undefined) return [...pieces, ...withoutValues(a, b.values, common)];
  if (common.includes('string')) pieces.push(...withoutTexts({ ...a, kinds: new Set(['string']) }, b));
  const numbers = common.filter((kind) => kind === 'integer' || kind === 'decimal');
  if (numbers.length > 0) pieces.push(...withoutNumbers({ ...a, kinds: new Set(numbers) }, b));
  if (common.includes('object')) pieces.push(...(yield* withoutObjects({ ...a, kinds: new Set(['object']) }, b)));
  if (common.includes('array')) pieces.push(...withoutArrays({ ...a, kinds: new Set(['array']) }, b));
  return pieces;
}

/** Non-integers cannot be distinguished from integers by their text. */
function add(pieces: Facts[], a: Facts, kinds: readonly Kind[]): void {
  const kept = kinds.includes('integer') ? kinds : kinds.filter((kind) => kind !== 'decimal');
  if (kept.length > 0) pieces.push({ ...a, kinds: new Set(kept) });
}

function withoutValues(a: Facts, values: readonly unknown[], kinds: readonly Kind[]): readonly Facts[] {
  const pieces: Facts[] = [];
  const met = new Set(values.map(kindOf));
  if (met.has('integer') || met.has('decimal')) met.add('integer').add('decimal');
  add(
    pieces,
    a,
    kinds.filter((kind) => !met.has(kind)),
  );
  if (kinds.includes('boolean') && met.has('boolean')) {
    const rest = [true, false].filter((value) => !values.includes(value));
    if (rest.length > 0) pieces.push({ ...a, kinds: new Set(['boolean']), values: rest });
  }
  const numbers = kinds.filter((kind) => kind === 'integer' || kind === 'decimal');
  if (numbers.includes('integer') && met.has('integer')) {
    const excluded = values.filter((value) => typeof value === 'number');
    pieces.push(...withoutEach({ ...a, kinds: new Set(numbers) }, excluded));
  }
  if (kinds.includes('string') && met.has('string')) {
    const texts = values.filter((value) => typeof value === 'string');
    pieces.push({ ...a, kinds: new Set(['string']), patterns: [...(a.patterns ?? []), noneOf(texts)] });
  }
  return pieces;
}

/** Maximum number of values whose gaps are alternatives. */
const maxGaps = 100;

/** Numbers between these and beyond them; none if there are many, or some without exact neighbors. */
function withoutEach(a: Facts, values: readonly number[]): readonly Facts[] {
  if (values.length > maxGaps || values.some((value) => Math.abs(value) >= 2 ** 53)) return [];
  const sorted = [...values].sort((x, y) => x - y);
  const bound = (value: number | undefined): Bound | undefined =>
    value === undefined ? undefined : { value, isExclusive: true, path: '' };
  return [undefined, ...sorted].flatMap((value, index) => {
    const [minimum, maximum] = [bound(value), bound(sorted[index])];
    const between = { kinds: a.kinds, ...(minimum && { minimum }), ...(maximum && { maximum }) };
    return both(a, between) ?? [];
  });
}

function noneOf(texts: readonly string[]): Pattern {
  const source = texts.map(escapeRegex).join('|');
  return { source, isWhole: true, isNegated: true, path: derivedPath('#', 'not', texts.join(' ')) };
}

function withoutTexts(a: Facts, { patterns = [], minLength = 0, maxLength }: Facts): readonly Facts[] {
  const pieces = patterns.map((pattern): Facts => {
    const negated = { ...pattern, isNegated: pattern.isNegated !== true };
    return { ...a, patterns: [...(a.patterns ?? []), negated] };
  });
  if (minLength > 0) pieces.push({ ...a, maxLength: Math.min(a.maxLength ?? Infinity, minLength - 1) });
  if (maxLength !== undefined) pieces.push({ ...a, minLength: Math.max(a.minLength ?? 0, maxLength + 1) });
  return pieces.filter((piece) => (piece.minLength ?? 0) <= (piece.maxLength ?? Infinity));
}

function withoutNumbers(a: Facts, { minimum, maximum }: Facts): readonly Facts[] {
  const flipped = ({ value, isExclusive, path }: Bound): Bound => ({ value, isExclusive: !isExclusive, path });
  const pieces: Facts[] = [];
  const isAbove = a.minimum !== undefined && minimum !== undefined && a.minimum.value >= minimum.value;
  if (minimum !== undefined && !isAbove) {
    const isTighter = a.maximum === undefined || a.maximum.value >= minimum.value;
    pieces.push({ ...a, maximum: isTighter ? flipped(minimum) : (a.maximum as Bound) });
  }
  const isBelow = a.maximum !== undefined && maximum !== undefined && a.maximum.value <= maximum.value;
  if (maximum !== undefined && !isBelow) {
    const isTighter = a.minimum === undefined || a.minimum.value <= maximum.value;
    pieces.push({ ...a, minimum: isTighter ? flipped(maximum) : (a.minimum as Bound) });
  }
  return pieces;
}

/** Objects without a property that b requires, with one that b does not allow, or with fewer or more of them. */
function* withoutObjects(a: Facts, b: Facts): Sliced<readonly Facts[]> {
  const pieces: Facts[] = [];
  const withProperty = (name: string, value: Located): Facts => {
    const shape = { properties: new Map([[name, [value]]]), patterns: [], additional: [] };
    return { ...a, shapes: [...(a.shapes ?? []), shape] };
  };
  for (const name of b.required ?? []) {
    if (a.required?.has(name) !== true) {
      pieces.push(withProperty(name, { schema: false, path: derivedPath('#', 'absent', name) }));
    }
  }
  for (const name of new Set([...declaredNames(a), ...declaredNames(b), ...(a.required ?? [])])) {
    const value = yield* propertyOf(b, name);
    if (value.length === 0) continue;
    const required = new Set([...(a.required ?? []), name]);
    pieces.push({ ...withProperty(name, negationOf(value)), required });
  }
  const { minProperties = 0, maxProperties } = b;
  if (minProperties > 0) {
    pieces.push({ ...a, maxProperties: Math.min(a.maxProperties ?? Infinity, minProperties - 1) });
  }
  if (maxProperties !== undefined) {
    pieces.push({ ...a, minProperties: Math.max(a.minProperties ?? 0, maxProperties + 1) });
  }
  return pieces.filter((piece) => (piece.minProperties ?? 0) <= (piece.maxProperties ?? Infinity));
}

function withoutArrays(a: Facts, b: Facts): readonly Facts[] {
  const pieces: Facts[] = [];
  const { minItems = 0, maxItems } = b;
  if (minItems > 0) pieces.push({ ...a, maxItems: Math.min(a.maxItems ?? Infinity, minItems - 1) });
  if (maxItems !== undefined) pieces.push({ ...a, minItems: Math.max(a.minItems ?? 0, maxItems + 1) });
  const first = itemOf(b, 0);
  if (first.length > 0) {
    const prefix = [[...itemOf(a, 0), negationOf(first)], ...(a.prefix ?? []).slice(1)];
    pieces.push({ ...a, prefix, items: a.items ?? [], minItems: Math.max(1, a.minItems ?? 0) });
  }
  return pieces.filter((piece) => (piece.minItems ?? 0) <= (piece.maxItems ?? Infinity));
}
