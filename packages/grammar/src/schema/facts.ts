/** A schema after references and combinators are resolved: constraints per type of JSON value. */
import type { Sliced } from '@winnow/tensor';
import { filtered } from './lists.js';

/** A JSON schema, draft 2020-12 or 7. */
export type JsonSchema = boolean | { readonly [keyword: string]: unknown };

/** A schema and its location, as a JSON pointer that begins with `#`. */
export interface Located {
  readonly schema: JsonSchema;
  readonly path: string;
}

/** A conjunction of schemas; an empty one accepts anything. */
export type Conjunction = readonly Located[];

export type Kind = 'null' | 'boolean' | 'object' | 'array' | 'string' | 'integer' | 'decimal';

export const allKinds: readonly Kind[] = ['object', 'array', 'string', 'integer', 'decimal', 'boolean', 'null'];

/** A conjunction of constraints. Constraints of a type apply only to values of that type. */
export interface Facts {
  readonly kinds: ReadonlySet<Kind>;
  /** The only allowed values. */
  readonly values?: readonly unknown[];
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly patterns?: readonly Pattern[];
  readonly minimum?: Bound;
  readonly maximum?: Bound;
  readonly divisors?: readonly number[];
  /** Schemas of properties by their names; a property has to satisfy all of these shapes. */
  readonly shapes?: readonly Shape[];
  readonly keys?: Conjunction;
  readonly required?: ReadonlySet<string>;
  readonly minProperties?: number;
  readonly maxProperties?: number;
  readonly prefix?: readonly Conjunction[];
  /** The schema of items after the prefix. */
  readonly items?: Conjunction;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly contains?: readonly Contained[];
  /** Path of `uniqueItems`, where it is true. */
  readonly unique?: string;
}

/** `contains`: at least `min` items that the schema accepts. */
export interface Contained {
  readonly value: Conjunction;
  readonly min: number;
  readonly path: string;
}

/** The properties of one schema. */
export interface Shape {
  /** In declaration order. */
  readonly properties: ReadonlyMap<string, Conjunction>;
  readonly patterns: readonly NamePattern[];
  /** The schema of all other properties. */
  readonly additional: Conjunction;
}

/** A schema of the properties whose names match. */
export interface NamePattern {
  readonly pattern: Pattern;
  readonly value: Conjunction;
  matches(name: string): Sliced<boolean>;
}

/** A regular expression, anchored at both ends or unanchored. */
export interface Pattern {
  readonly source: string;
  readonly isWhole: boolean;
  /** Accept the texts that do not match. Default false. */
  readonly isNegated?: boolean;
  /** Stricter than its keyword, as the expressions of formats are. Default false. */
  readonly isNarrow?: boolean;
  readonly path: string;
}

export interface Bound {
  readonly value: number;
  readonly isExclusive: boolean;
  readonly path: string;
}

/** The conjunction; undefined when no type of value remains. */
export function both(a: Facts, b: Facts): Facts | undefined {
  const kinds = new Set([...a.kinds].filter((kind) => b.kinds.has(kind)));
  if (kinds.size === 0) return undefined;
  const values = a.values && b.values ? a.values.filter(memberOf(b.values)) : (a.values ?? b.values);
  if (values?.length === 0) return undefined;
  const result: { -readonly [K in keyof Facts]: Facts[K] } = { kinds };
  if (values !== undefined) result.values = values;
  const numbers = {
    minLength: largest,
    maxLength: least,
    minProperties: largest,
    maxProperties: least,
    minItems: largest,
    maxItems: least,
  };
  for (const [name, pick] of Object.entries(numbers) as [keyof typeof numbers, typeof largest][]) {
    const value = pick(a[name], b[name]);
    if (value !== undefined) result[name] = value;
  }
  const minimum = tighter(a.minimum, b.minimum, 1);
  if (minimum !== undefined) result.minimum = minimum;
  const maximum = tighter(a.maximum, b.maximum, -1);
  if (maximum !== undefined) result.maximum = maximum;
  if (a.patterns ?? b.patterns) result.patterns = joined(a.patterns, b.patterns);
  if (a.divisors ?? b.divisors) result.divisors = joined(a.divisors, b.divisors);
  if (a.keys ?? b.keys) result.keys = conjoined(a.keys, b.keys);
  if (a.required ?? b.required) result.required = new Set([...(a.required ?? []), ...(b.required ?? [])]);
  if (a.contains ?? b.contains) result.contains = joined(a.contains, b.contains);
  const unique = a.unique ?? b.unique;
  if (unique !== undefined) result.unique = unique;
  if (a.shapes ?? b.shapes) result.shapes = joined(a.shapes, b.shapes);
  if (a.prefix ?? b.prefix ?? a.items ?? b.items) {
    const length = Math.max(a.prefix?.length ?? 0, b.prefix?.length ?? 0);
    result.prefix = Array.from({ length }, (_, index) => conjoined(itemOf(a, index), itemOf(b, index)));
    result.items = conjoined(a.items, b.items);
  }
  return result;
}

/** The union: very many paths may lead to the same schema. */
function joined<T>(a: readonly T[] = [], b: readonly T[] = []): readonly T[] {
  return [...new Set([...a, ...b])];
}

/** The same for schemas, which are identified by their paths. */
export function conjoined(a: Conjunction = [], b: Conjunction = []): Conjunction {
  return [...new Map([...a, ...b].map((located) => [located.path, located])).values()];
}

/** The schema of a property. */
export function* propertyOf({ shapes = [] }: Facts, name: string): Sliced<Conjunction> {
  let all: Conjunction = [];
  for (const { properties, patterns, additional } of shapes) {
    const own = properties.get(name);
    const matching = yield* filtered(patterns, (pattern) => pattern.matches(name));
    const isOther = own === undefined && matching.length === 0;
    all = conjoined(all, isOther ? additional : [...(own ?? []), ...matching.flatMap(({ value }) => value)]);
  }
  return all;
}

/** The names of all declared properties, in declaration order. */
export function declaredNames({ shapes = [] }: Facts): ReadonlySet<string> {
  return new Set(shapes.flatMap(({ properties }) => [...properties.keys()]));
}

/** The schema of an item. */
export function itemOf({ prefix = [], items = [] }: Facts, index: number): Conjunction {
  return prefix[index] ?? items;
}

function largest(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined || b === undefined ? (a ?? b) : Math.max(a, b);
}

function least(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined || b === undefined ? (a ?? b) : Math.min(a, b);
}

function tighter(a: Bound | undefined, b: Bound | undefined, sign: 1 | -1): Bound | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  if (a.value === b.value) return a.isExclusive ? a : b;
  return sign * (a.value - b.value) > 0 ? a : b;
}

/** Texts of lists of values. */
const textsOf = new WeakMap<readonly unknown[], ReadonlySet<string>>();

/** Whether a list has a value. Members of objects are compared in any order. */
export function memberOf(values: readonly unknown[]): (value: unknown) => boolean {
  let texts = textsOf.get(values);
  if (texts === undefined) textsOf.set(values, (texts = new Set(values.map(canonical))));
  return (value) => texts.has(canonical(value));
}

/** Each value once. */
export function distinct(values: readonly unknown[]): readonly unknown[] {
  return [...new Map(values.map((value) => [canonical(value), value])).values()];
}

/** JSON text with the members of objects in order, so that equal values have the same. */
export function canonical(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) => {
    if (typeof inner !== 'object' || inner === null || Array.isArray(inner)) return inner;
    return Object.fromEntries(Object.entries(inner).sort(([x], [y]) => (x < y ? -1 : 1)));
  });
}
