/** The facts of a single schema's keywords; rejects keywords that a grammar cannot enforce. */
import { isRecord, type Sliced } from '@winnow/tensor';
import type { WorkBudget } from '../work-budget.js';
import { allKinds, type Bound, type Facts, type JsonSchema, type Kind, type NamePattern, type Shape } from './facts.js';
import { formats } from './formats.js';
import { escapePointer, fail, locate } from './located.js';
import { divisorOf } from './numbers.js';
import { matchesPattern } from './strings.js';

/** Keywords that affect validity and that a grammar cannot enforce. All others that are not read are annotations. */
const unsupported: ReadonlySet<string> = new Set([
  'unevaluatedItems',
  'unevaluatedProperties',
  '$dynamicRef',
  '$recursiveRef',
]);

/** Whether a keyword is known not to affect validity. */
export function isAnnotation(keyword: string): boolean {
  return !unsupported.has(keyword) && !keywordReaders.has(keyword);
}

const kindsOfType: Readonly<Record<string, readonly Kind[]>> = {
  null: ['null'],
  boolean: ['boolean'],
  object: ['object'],
  array: ['array'],
  string: ['string'],
  integer: ['integer'],
  number: ['integer', 'decimal'],
};

type Writable = { -readonly [K in keyof Facts]: Facts[K] };

/** One schema and what was read of it so far. */
interface Reading {
  readonly schema: Exclude<JsonSchema, boolean>;
  readonly facts: Writable;
  readonly shape: { -readonly [K in keyof Shape]?: Shape[K] };
  readonly budget: WorkBudget;
}

/** The facts of the keywords of a single schema. */
export function factsOf(schema: Exclude<JsonSchema, boolean>, path: string, budget: WorkBudget): readonly Facts[] {
  const facts: Writable = { kinds: kindsOf(schema, path) };
  const reading: Reading = { schema, facts, shape: {}, budget };
  for (const [keyword, value] of Object.entries(schema)) {
    if (isAnnotation(keyword) || value === undefined) continue;
    const place = `${path}/${escapePointer(keyword)}`;
    const read = keywordReaders.get(keyword) ?? fail(place, 'a keyword that constrained decoding does not support');
    read(facts, value, place, reading);
  }
  const { properties = new Map(), patterns = [], additional = [] } = reading.shape;
  if (Object.keys(reading.shape).length > 0) facts.shapes = [{ properties, patterns, additional }];
  if (facts.prefix !== undefined || facts.items !== undefined) facts.items ??= [];
  return facts.kinds.size === 0 || facts.values?.length === 0 ? [] : [facts];
}

/** The declared types. */
function kindsOf(schema: Exclude<JsonSchema, boolean>, path: string): ReadonlySet<Kind> {
  const type = schema['type'];
  if (type === undefined) return new Set(allKinds);
  const types: unknown[] = [...(Array.isArray(type) ? (type as unknown[]) : [type])];
  if (schema['nullable'] === true) types.push('null'); // OpenAPI 3.0
  return new Set(
    types.flatMap((name) => {
      if (typeof name === 'string' && Object.hasOwn(kindsOfType, name)) return kindsOfType[name] as readonly Kind[];
      return fail(`${path}/type`, `expected ${Object.keys(kindsOfType).join(' | ')}, got ${JSON.stringify(name)}`);
    }),
  );
}

type KeywordReader = (facts: Writable, value: unknown, path: string, reading: Reading) => void;

const ignore: KeywordReader = () => {};
const readMinimum =
  (isExclusive: boolean): KeywordReader =>
  (facts, value, path) => {
    facts.minimum = boundOf(facts.minimum, value, isExclusive, path, 1);
  };
const readMaximum =
  (isExclusive: boolean): KeywordReader =>
  (facts, value, path) => {
    facts.maximum = boundOf(facts.maximum, value, isExclusive, path, -1);
  };
type CountKeyword = 'minLength' | 'maxLength' | 'minItems' | 'maxItems' | 'minProperties' | 'maxProperties';
const readCount =
  (keyword: CountKeyword): KeywordReader =>
  (facts, value, path) => {
    facts[keyword] = countOf(value, path);
  };

const valueKeywords: Readonly<Record<string, KeywordReader>> = {
  enum(facts, value, path, { schema }) {
    if (!Array.isArray(value)) fail(path, `expected values, got ${JSON.stringify(value)}`);
    facts.values =
      facts.values === undefined
        ? value
        : value.filter((one) => JSON.stringify(one) === JSON.stringify(schema['const']));
  },
  const(facts, value) {
    facts.values =
      facts.values === undefined
        ? [value]
        : facts.values.filter((one) => JSON.stringify(one) === JSON.stringify(value));
  },
};

const textKeywords: Readonly<Record<string, KeywordReader>> = {
  minLength: readCount('minLength'),
  maxLength: readCount('maxLength'),
  pattern(facts, value, path) {
    if (typeof value !== 'string') fail(path, `expected a string, got ${JSON.stringify(value)}`);
    facts.patterns = [...(facts.patterns ?? []), { source: value, isWhole: false, path }];
  },
  format(facts, value, path) {
    if (typeof value !== 'string') fail(path, `expected a string, got ${JSON.stringify(value)}`);
    const bits = integerFormats.get(value);
    if (bits !== undefined) return restrictInteger(facts, bits, path);
    const source = formats.get(value);
    if (source === undefined) return; // an annotation
    facts.patterns = [...(facts.patterns ?? []), { source, isWhole: true, isNarrow: true, path }];
  },
};

/** Bits of OpenAPI's formats of integers. */
const integerFormats: ReadonlyMap<string, number> = new Map([
  ['int32', 32],
  ['int64', 64],
]);

function restrictInteger(facts: Writable, bits: number, path: string): void {
  facts.kinds = new Set([...facts.kinds].filter((kind) => kind !== 'decimal'));
  const limit = 2 ** (bits - 1);
  facts.minimum = boundOf(facts.minimum, -limit, false, path, 1);
  facts.maximum = boundOf(facts.maximum, limit, true, path, -1);
}

const numberKeywords: Readonly<Record<string, KeywordReader>> = {
  minimum: readMinimum(false),
  exclusiveMinimum: readMinimum(true),
  maximum: readMaximum(false),
  exclusiveMaximum: readMaximum(true),
  multipleOf(facts, value, path) {
    if (typeof value !== 'number' || divisorOf(value) === undefined) {
      const expected = 'a positive number with few digits, whose multiples an automaton can match';
      fail(path, `expected ${expected}, got ${JSON.stringify(value)}`);
    }
    facts.divisors = [value];
  },
};

const objectKeywords: Readonly<Record<string, KeywordReader>> = {
  minProperties: readCount('minProperties'),
  maxProperties: readCount('maxProperties'),
  properties(_, value, path, { shape }) {
    shape.properties = new Map(
      Object.entries(recordOf(value, path)).map(([name, inner]) => [
        name,
        [locate(inner, `${path}/${escapePointer(name)}`)],
      ]),
    );
  },
  patternProperties(_, value, path, { shape, budget }) {
    shape.patterns = Object.entries(recordOf(value, path)).map(([source, inner]): NamePattern => {
      const place = `${path}/${escapePointer(source)}`;
      const pattern = { source, isWhole: false, path: place };
      const known = new Map<string, boolean>();
      function* matches(name: string): Sliced<boolean> {
        const isMatch = known.get(name) ?? (yield* matchesPattern(pattern, name, budget));
        known.set(name, isMatch);
        return isMatch;
      }
      return { pattern, value: [locate(inner, place)], matches };
    });
  },
  required(facts, value, path) {
    if (!Array.isArray(value) || !value.every((name) => typeof name === 'string')) {
      fail(path, `expected an array of strings, got ${JSON.stringify(value)}`);
    }
    facts.required = new Set(value);
  },
  additionalProperties(_, value, path, { shape }) {
    shape.additional = [locate(value, path)];
  },
  propertyNames(facts, value, path) {
    facts.keys = [locate(value, path)];
  },
};

const arrayKeywords: Readonly<Record<string, KeywordReader>> = {
  minItems: readCount('minItems'),
  maxItems: readCount('maxItems'),
  prefixItems(facts, value, path) {
    if (!Array.isArray(value)) fail(path, `expected schemas, got ${JSON.stringify(value)}`);
    facts.prefix = value.map((inner, index) => [locate(inner, `${path}/${index}`)]);
  },
  items(facts, value, path) {
    if (Array.isArray(value)) facts.prefix = value.map((inner, index) => [locate(inner, `${path}/${index}`)]);
    else facts.items = [locate(value, path)];
  },
  additionalItems(facts, value, path, { schema }) {
    if (Array.isArray(schema['items'])) facts.items = [locate(value, path)];
  },
  uniqueItems(facts, value, path) {
    if (value === true) facts.unique = path;
  },
  contains(facts, value, path, { schema }) {
    if (schema['maxContains'] !== undefined) fail(path, 'constrained decoding does not support maxContains');
    const min = schema['minContains'] === undefined ? 1 : countOf(schema['minContains'], path);
    if (min > 0) facts.contains = [{ value: [locate(value, path)], min, path }];
  },
};

/** Every keyword that a grammar can enforce; the resolver handles combinators. */
const keywordReaders: ReadonlyMap<string, KeywordReader> = new Map([
  ['then', ignore],
  ...Object.entries({
    ...{ type: ignore, $ref: ignore, allOf: ignore, anyOf: ignore, oneOf: ignore },
    ...{ not: ignore, if: ignore, else: ignore },
    ...{ dependencies: ignore, dependentRequired: ignore, dependentSchemas: ignore },
    ...valueKeywords,
    ...textKeywords,
    ...numberKeywords,
    ...objectKeywords,
    ...arrayKeywords,
  }),
]);

function countOf(value: unknown, path: string): number {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0) return value;
  return fail(path, `expected a non-negative integer, got ${JSON.stringify(value)}`);
}

function boundOf(present: Bound | undefined, value: unknown, isExclusive: boolean, path: string, sign: 1 | -1): Bound {
  if (typeof value !== 'number' || !Number.isFinite(value))
    fail(path, `expected a number, got ${JSON.stringify(value)}`);
  const bound = { value, isExclusive, path };
  if (present === undefined) return bound;
  if (present.value === value) return present.isExclusive ? present : bound;
  return sign * (value - present.value) > 0 ? bound : present;
}

function recordOf(value: unknown, path: string): Record<string, unknown> {
  if (isRecord(value)) return value;
  return fail(path, `expected an object, got ${JSON.stringify(value)}`);
}
