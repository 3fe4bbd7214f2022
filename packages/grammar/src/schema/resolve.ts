/** From schemas to facts: follows references, distributes alternatives, refuses what it does not know. */
import { CapacityError, FormatError } from '@winnow/tensor';
import {
  allKinds,
  both,
  type Bound,
  type Conjunction,
  type Facts,
  type JsonSchema,
  type Kind,
  type Located,
} from './facts.js';
import { areDisjoint } from './disjoint.js';
import { formats, isOwnFormat } from './formats.js';

/** Most alternatives that combinations of combinations may come to. */
const maxAlternatives = 1000;

/** Keywords that say nothing about which values are valid. */
const annotations = new Set([
  '$schema',
  '$id',
  'id',
  '$comment',
  '$anchor',
  '$defs',
  'definitions',
  '$vocabulary',
  'title',
  'description',
  'default',
  'example',
  'examples',
  'deprecated',
  'readOnly',
  'writeOnly',
  'contentEncoding',
  'contentMediaType',
  'contentSchema',
]);

/** Keywords that are about values of these types only. */
const kindsOfKeyword: Readonly<Record<string, readonly Kind[]>> = {
  minLength: ['string'],
  maxLength: ['string'],
  pattern: ['string'],
  format: ['string'],
  minimum: ['integer', 'decimal'],
  maximum: ['integer', 'decimal'],
  exclusiveMinimum: ['integer', 'decimal'],
  exclusiveMaximum: ['integer', 'decimal'],
  multipleOf: ['integer', 'decimal'],
  properties: ['object'],
  required: ['object'],
  additionalProperties: ['object'],
  propertyNames: ['object'],
  minProperties: ['object'],
  maxProperties: ['object'],
  items: ['array'],
  prefixItems: ['array'],
  additionalItems: ['array'],
  minItems: ['array'],
  maxItems: ['array'],
  uniqueItems: ['array'],
};

const kindsOfType: Readonly<Record<string, readonly Kind[]>> = {
  null: ['null'],
  boolean: ['boolean'],
  object: ['object'],
  array: ['array'],
  string: ['string'],
  integer: ['integer'],
  number: ['integer', 'decimal'],
};

export interface Resolver {
  /** The alternatives of schemas that hold together; none: no value is valid. */
  resolve(conjunction: Conjunction): readonly Facts[];
  /** A conjunction with plain references replaced by what they refer to. */
  follow(conjunction: Conjunction): Conjunction;
}

export function fail(path: string, message: string): never {
  throw new FormatError({ source: 'JSON schema', field: path, message });
}

export function createResolver(root: JsonSchema): Resolver {
  const anchors = new Map<string, Located>();
  const checking = new Set<string>();
  collectAnchors(root, '#', anchors, 0);

  function target(reference: unknown, path: string): Located {
    if (typeof reference !== 'string') fail(path, `expected a text, got ${JSON.stringify(reference)}`);
    const anchor = anchors.get(reference);
    if (anchor !== undefined) return anchor;
    if (reference !== '#' && !reference.startsWith('#/')) {
      fail(path, `expected a reference inside this schema, got ${JSON.stringify(reference)}`);
    }
    let found: unknown = root;
    for (const part of reference.split('/').slice(1)) {
      const name = decode(part, path).replaceAll('~1', '/').replaceAll('~0', '~');
      const isOwn = typeof found === 'object' && found !== null && Object.hasOwn(found, name);
      if (!isOwn) fail(path, `expected a reference to a part of this schema, got ${JSON.stringify(reference)}`);
      found = (found as Record<string, unknown>)[name];
    }
    return locate(found, reference);
  }

  function follow(conjunction: Conjunction): Conjunction {
    const result = new Map<string, Located>();
    for (const part of conjunction) {
      let { schema, path } = part;
      const seen = new Set<string>();
      while (typeof schema === 'object' && isPlainReference(schema)) {
        if (seen.has(path)) fail(path, 'a reference that leads back to itself');
        seen.add(path);
        ({ schema, path } = target(schema['$ref'], `${path}/$ref`));
      }
      if (schema !== true) result.set(path, { schema, path });
    }
    return [...result.values()];
  }

  function expand({ schema, path }: Located, open: ReadonlySet<string>): readonly Facts[] {
    if (schema === true) return [{ kinds: new Set(allKinds) }];
    if (schema === false) return [];
    if (open.has(path)) fail(path, 'a schema that refers to itself without a value in between');
    const inside = new Set(open).add(path);
    let alternatives: readonly Facts[] = factsOf(schema, path);
    const and = (more: readonly Facts[]): void => {
      const product = alternatives.flatMap((a) => more.flatMap((b) => both(a, b) ?? []));
      if (product.length > maxAlternatives) {
        const [needed, available] = [product.length, maxAlternatives];
        throw new CapacityError({ resource: `alternatives of ${path}`, needed, available, unit: 'schemas' });
      }
      alternatives = product;
    };
    if (schema['$ref'] !== undefined) and(expand(target(schema['$ref'], `${path}/$ref`), inside));
    for (const part of listOf(schema, 'allOf', path)) and(expand(part, inside));
    if (schema['anyOf'] !== undefined) and(listOf(schema, 'anyOf', path).flatMap((part) => expand(part, inside)));
    if (schema['oneOf'] !== undefined) {
      const branches = listOf(schema, 'oneOf', path).map((part) => expand(part, inside));
      checkExclusive(branches, alternatives, path);
      and(branches.flat());
    }
    return alternatives;
  }

  /** What is valid by two branches is not valid: a grammar needs branches that exclude each other. */
  function checkExclusive(branches: readonly (readonly Facts[])[], common: readonly Facts[], path: string): void {
    if (checking.has(path)) return; // looking for a difference has led back here
    checking.add(path);
    for (const [index, branch] of branches.entries()) {
      for (const other of branches.slice(index + 1)) {
        for (const [a, b] of branch.flatMap((one) => other.map((two) => [one, two] as const))) {
          if (areDisjoint(a, b, resolve) || common.every((own) => isNever(own, a, b))) continue;
          const expected = 'alternatives that exclude each other, by type or by a constant property';
          fail(`${path}/oneOf`, `expected ${expected} (or anyOf)`);
        }
      }
    }
    checking.delete(path);
  }

  function isNever(own: Facts, a: Facts, b: Facts): boolean {
    const first = both(own, a);
    const second = both(own, b);
    return first === undefined || second === undefined || areDisjoint(first, second, resolve);
  }

  function resolve(conjunction: Conjunction): readonly Facts[] {
    let alternatives: readonly Facts[] = [{ kinds: new Set(allKinds) }];
    for (const part of conjunction) {
      const own = expand(part, new Set());
      alternatives = alternatives.flatMap((a) => own.flatMap((b) => both(a, b) ?? []));
      if (alternatives.length > maxAlternatives) {
        const [needed, available] = [alternatives.length, maxAlternatives];
        throw new CapacityError({ resource: `alternatives of ${part.path}`, needed, available, unit: 'schemas' });
      }
    }
    return alternatives;
  }

  return { resolve, follow };
}

function isPlainReference(schema: Exclude<JsonSchema, boolean>): boolean {
  return schema['$ref'] !== undefined && Object.keys(schema).every((name) => name === '$ref' || annotations.has(name));
}

/** Checks that it is a schema. */
export function locate(schema: unknown, path: string): Located {
  if (typeof schema === 'boolean') return { schema, path };
  if (typeof schema === 'object' && schema !== null && !Array.isArray(schema)) {
    return { schema: schema as JsonSchema, path };
  }
  return fail(path, `expected a schema, got ${JSON.stringify(schema)}`);
}

function collectAnchors(value: unknown, path: string, anchors: Map<string, Located>, depth: number): void {
  if (typeof value !== 'object' || value === null) return;
  if (depth > 200) throw new CapacityError({ resource: 'JSON schema', needed: depth, available: 200, unit: 'levels' });
  for (const [name, inner] of Object.entries(value)) {
    if (name === '$anchor' && typeof inner === 'string') anchors.set(`#${inner}`, locate(value, path));
    collectAnchors(inner, `${path}/${escapePointer(name)}`, anchors, depth + 1);
  }
}

function decode(part: string, path: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return fail(path, `expected a JSON pointer, got ${JSON.stringify(part)}`);
  }
}

export function escapePointer(name: string): string {
  return name.replaceAll('~', '~0').replaceAll('/', '~1');
}

function listOf(schema: Exclude<JsonSchema, boolean>, keyword: string, path: string): readonly Located[] {
  const list = schema[keyword];
  if (list === undefined) return [];
  if (!Array.isArray(list) || list.length === 0)
    fail(`${path}/${keyword}`, `expected schemas, got ${JSON.stringify(list)}`);
  return list.map((part, index) => locate(part, `${path}/${keyword}/${index}`));
}

type Writable = { -readonly [K in keyof Facts]: Facts[K] };

/** What the keywords of one schema say by themselves. */
function factsOf(schema: Exclude<JsonSchema, boolean>, path: string): readonly Facts[] {
  const facts: Writable = { kinds: kindsOf(schema, path) };
  for (const [keyword, value] of Object.entries(schema)) {
    if (annotations.has(keyword) || keyword.startsWith('x-') || value === undefined) continue;
    addKeyword(facts, schema, keyword, value, `${path}/${escapePointer(keyword)}`);
  }
  if (facts.prefix !== undefined || facts.items !== undefined) facts.items ??= [];
  return facts.kinds.size === 0 || facts.values?.length === 0 ? [] : [facts];
}

/** The types named, or those that the keywords are about. */
function kindsOf(schema: Exclude<JsonSchema, boolean>, path: string): ReadonlySet<Kind> {
  const type = schema['type'];
  if (type === undefined) {
    const meant = Object.keys(schema).flatMap((keyword) =>
      Object.hasOwn(kindsOfKeyword, keyword) ? (kindsOfKeyword[keyword] as readonly Kind[]) : [],
    );
    return new Set(
      meant.length > 0 && schema['enum'] === undefined && schema['const'] === undefined ? meant : allKinds,
    );
  }
  const types: unknown[] = Array.isArray(type) ? type : [type];
  return new Set(
    types.flatMap((name) => {
      if (typeof name === 'string' && Object.hasOwn(kindsOfType, name)) return kindsOfType[name] as readonly Kind[];
      return fail(`${path}/type`, `expected ${Object.keys(kindsOfType).join(' | ')}, got ${JSON.stringify(name)}`);
    }),
  );
}

function addKeyword(
  facts: Writable,
  schema: Exclude<JsonSchema, boolean>,
  keyword: string,
  value: unknown,
  path: string,
): void {
  switch (keyword) {
    case 'type':
    case '$ref':
    case 'allOf':
    case 'anyOf':
    case 'oneOf':
      return;
    case 'enum':
      if (!Array.isArray(value)) fail(path, `expected values, got ${JSON.stringify(value)}`);
      facts.values =
        facts.values === undefined
          ? value
          : value.filter((one) => JSON.stringify(one) === JSON.stringify(schema['const']));
      return;
    case 'const':
      facts.values =
        facts.values === undefined
          ? [value]
          : facts.values.filter((one) => JSON.stringify(one) === JSON.stringify(value));
      return;
    case 'minLength':
    case 'maxLength':
    case 'minItems':
    case 'maxItems':
    case 'minProperties':
    case 'maxProperties':
      facts[keyword] = countOf(value, path);
      return;
    case 'pattern':
    case 'format':
      // a format of somebody's own, such as those of zod, says what the pattern beside it says
      if (keyword === 'format' && typeof schema['pattern'] === 'string' && isOwnFormat(value)) return;
      facts.patterns = [...(facts.patterns ?? []), patternOf(keyword, value, path)];
      return;
    case 'minimum':
    case 'exclusiveMinimum':
      facts.minimum = boundOf(facts.minimum, value, keyword === 'exclusiveMinimum', path, 1);
      return;
    case 'maximum':
    case 'exclusiveMaximum':
      facts.maximum = boundOf(facts.maximum, value, keyword === 'exclusiveMaximum', path, -1);
      return;
    case 'multipleOf':
      if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 1 || value > 1000) {
        fail(
          path,
          `expected a whole number from 1 to 1000 (others cannot be written as a grammar), got ${JSON.stringify(value)}`,
        );
      }
      facts.divisors = [value];
      return;
    case 'properties':
      facts.properties = new Map(
        Object.entries(recordOf(value, path)).map(([name, inner]) => [
          name,
          [locate(inner, `${path}/${escapePointer(name)}`)],
        ]),
      );
      return;
    case 'required':
      if (!Array.isArray(value) || !value.every((name) => typeof name === 'string')) {
        fail(path, `expected names, got ${JSON.stringify(value)}`);
      }
      facts.required = new Set(value);
      return;
    case 'additionalProperties':
      facts.additional = [locate(value, path)];
      return;
    case 'propertyNames':
      facts.keys = [locate(value, path)];
      return;
    case 'prefixItems':
      if (!Array.isArray(value)) fail(path, `expected schemas, got ${JSON.stringify(value)}`);
      facts.prefix = value.map((inner, index) => [locate(inner, `${path}/${index}`)]);
      return;
    case 'items':
      if (Array.isArray(value)) facts.prefix = value.map((inner, index) => [locate(inner, `${path}/${index}`)]);
      else facts.items = [locate(value, path)];
      return;
    case 'additionalItems':
      if (Array.isArray(schema['items'])) facts.items = [locate(value, path)];
      return;
    case 'uniqueItems':
      if (value !== false) fail(path, 'a grammar cannot compare items with each other');
      return;
    default:
      fail(path, 'a keyword that constrained decoding does not support');
  }
}

function countOf(value: unknown, path: string): number {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0) return value;
  return fail(path, `expected a whole number from 0, got ${JSON.stringify(value)}`);
}

function boundOf(present: Bound | undefined, value: unknown, isExclusive: boolean, path: string, sign: 1 | -1): Bound {
  if (typeof value !== 'number' || !Number.isFinite(value))
    fail(path, `expected a number, got ${JSON.stringify(value)}`);
  const bound = { value, isExclusive, path };
  if (present === undefined) return bound;
  if (present.value === value) return present.isExclusive ? present : bound;
  return sign * (value - present.value) > 0 ? bound : present;
}

function patternOf(keyword: string, value: unknown, path: string): { source: string; isWhole: boolean; path: string } {
  if (typeof value !== 'string') fail(path, `expected a text, got ${JSON.stringify(value)}`);
  if (keyword === 'pattern') return { source: value, isWhole: false, path };
  const source = formats.get(value);
  if (source === undefined) fail(path, `expected ${[...formats.keys()].join(' | ')}, got ${JSON.stringify(value)}`);
  return { source, isWhole: true, path };
}

function recordOf(value: unknown, path: string): Record<string, unknown> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  return fail(path, `expected an object, got ${JSON.stringify(value)}`);
}
