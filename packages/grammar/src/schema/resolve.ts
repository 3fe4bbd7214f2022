/** Resolves schemas to facts: follows references, distributes alternatives, rejects unknown keywords. */
import type { Sliced } from '@winnow/tensor';
import type { WorkBudget } from '../work-budget.js';
import { allKinds, both, type Conjunction, type Facts, type JsonSchema, type Located } from './facts.js';
import { areDisjoint } from './disjoint.js';
import { factsOf, isAnnotation } from './keywords.js';
import { derivedPath, escapePointer, fail, isDerived, locate, placeOf } from './located.js';
import { without } from './without.js';

/** Maximum number of alternatives that nested combinators may expand to. */
const maxAlternatives = 1000;

export class Resolver {
  readonly budget: WorkBudget;
  readonly #root: JsonSchema;
  /** Drafts up to 7 ignore the keywords next to `$ref`. */
  readonly #ignoresSiblings: boolean;
  readonly #anchors: ReadonlyMap<string, Located>;
  /** Alternatives by the location of a schema. */
  readonly #expanded = new Map<string, readonly Facts[]>();

  /**
   * A resolver of supersets: it keeps branches of `oneOf` that overlap and ignores negations. Other resolvers give
   * subsets of what a schema accepts.
   */
  readonly wide: Resolver;

  /** @param anchors see `anchorsOf` @param isWide see `wide` */
  constructor(root: JsonSchema, anchors: ReadonlyMap<string, Located>, budget: WorkBudget, isWide = false) {
    this.budget = budget;
    this.#anchors = anchors;
    this.wide = isWide ? this : new Resolver(root, anchors, budget, true);
    this.#root = root;
    this.#ignoresSiblings = typeof root === 'object' && /\/draft-0[3-7]\//.test(String(root['$schema']));
  }

  #target(reference: unknown, path: string): Located {
    if (typeof reference !== 'string') fail(path, `expected a string, got ${JSON.stringify(reference)}`);
    const anchor = this.#anchors.get(reference);
    if (anchor !== undefined) return anchor;
    if (reference !== '#' && !reference.startsWith('#/')) {
      fail(path, `expected a reference inside this schema, got ${JSON.stringify(reference)}`);
    }
    let found: unknown = this.#root;
    for (const part of reference.split('/').slice(1)) {
      const name = decode(part, path).replaceAll('~1', '/').replaceAll('~0', '~');
      const isOwn = typeof found === 'object' && found !== null && Object.hasOwn(found, name);
      if (!isOwn)
        fail(path, `expected a reference to an existing part of this schema, got ${JSON.stringify(reference)}`);
      found = (found as Record<string, unknown>)[name];
    }
    return locate(found, reference);
  }

  #isLoneReference(schema: Exclude<JsonSchema, boolean>): boolean {
    return this.#ignoresSiblings && schema['$ref'] !== undefined;
  }

  /** A conjunction with plain references replaced by their targets. */
  follow(conjunction: Conjunction): Conjunction {
    const result = new Map<string, Located>();
    for (const part of conjunction) {
      let { schema, path } = part;
      const seen = new Set<string>();
      while (typeof schema === 'object' && (isPlainReference(schema) || this.#isLoneReference(schema))) {
        if (seen.has(path)) fail(path, 'a reference cycle');
        seen.add(path);
        ({ schema, path } = this.#target(schema['$ref'], `${path}/$ref`));
      }
      if (schema !== true) result.set(path, { schema, path });
    }
    return [...result.values()];
  }

  /** The alternatives of a schema, computed once per place: very many references may lead to it. */
  *#expand(located: Located, open: ReadonlySet<string>): Sliced<readonly Facts[]> {
    const known = this.#expanded.get(located.path);
    if (known !== undefined) return known;
    if (this.budget.isSliceOver()) yield;
    const alternatives = yield* this.#expandOnce(located, open);
    this.#expanded.set(located.path, alternatives);
    return alternatives;
  }

  *#expandOnce({ schema, path }: Located, open: ReadonlySet<string>): Sliced<readonly Facts[]> {
    if (schema === true) return [{ kinds: new Set(allKinds) }];
    if (schema === false) return [];
    if (open.has(path)) fail(path, 'a schema that refers to itself without consuming a value');
    const inside = new Set(open).add(path);
    const target = (): Located => this.#target(schema['$ref'], `${path}/$ref`);
    if (this.#isLoneReference(schema)) return yield* this.#expand(target(), inside);
    let alternatives: readonly Facts[] = factsOf(schema, path, this.budget);
    const parts = schema['$ref'] === undefined ? [] : [[target()]];
    for (const part of listOf(schema, 'allOf', path)) parts.push([part]);
    if (schema['anyOf'] !== undefined) parts.push([...listOf(schema, 'anyOf', path)]);
    for (const choices of dependenciesOf(schema, path)) parts.push([...choices]);
    const oneOf = schema['oneOf'] === undefined ? undefined : listOf(schema, 'oneOf', path);
    if (this.wide === this && oneOf !== undefined) parts.push([...oneOf]);
    for (const choices of parts) {
      alternatives = yield* this.#product(alternatives, yield* this.#anyOf(choices, inside), path);
    }
    if (this.wide === this) return alternatives.map(withoutNarrowPatterns);
    if (schema['if'] !== undefined && (schema['then'] ?? schema['else']) !== undefined)
      alternatives = yield* this.#product(alternatives, yield* this.#conditional(schema, path, inside), path);
    if (oneOf !== undefined) alternatives = yield* this.#exactlyOne(alternatives, oneOf, path, inside);
    if (schema['not'] !== undefined)
      alternatives = yield* this.#negate(alternatives, locate(schema['not'], `${path}/not`));
    return alternatives;
  }

  /** The alternatives of all these schemas. */
  *#anyOf(schemas: readonly Located[], inside: ReadonlySet<string>): Sliced<readonly Facts[]> {
    const alternatives: Facts[] = [];
    for (const part of schemas) for (const facts of yield* this.#expand(part, inside)) alternatives.push(facts);
    return alternatives;
  }

  /** What one branch accepts and no other one does. */
  *#exactlyOne(
    common: readonly Facts[],
    branches: readonly Located[],
    path: string,
    inside: ReadonlySet<string>,
  ): Sliced<readonly Facts[]> {
    const accepted: (readonly Facts[])[] = [];
    for (const branch of branches) accepted.push(yield* this.wide.#expand(branch, new Set()));
    const result: Facts[] = [];
    for (const [index, branch] of branches.entries()) {
      let own = yield* this.#product(common, yield* this.#expand(branch, inside), path);
      for (const [other, others] of accepted.entries()) {
        if (other !== index) own = yield* this.#exclude(own, others);
      }
      for (const facts of own) result.push(facts);
    }
    if (result.length > 0 || common.length === 0 || accepted.every(({ length }) => length === 0)) return result;
    const expected = 'mutually exclusive alternatives, by type or by a constant property';
    return fail(`${path}/oneOf`, `expected ${expected} (or anyOf)`);
  }

  /** What satisfies `if` and `then`, or `else` but not `if`. */
  *#conditional(
    schema: Exclude<JsonSchema, boolean>,
    path: string,
    inside: ReadonlySet<string>,
  ): Sliced<readonly Facts[]> {
    const part = (keyword: string): Located => locate(schema[keyword] ?? true, `${path}/${keyword}`);
    const anything: readonly Facts[] = [{ kinds: new Set(allKinds) }];
    const condition = part('if');
    const then = yield* this.#expand(part('then'), inside);
    const met = yield* this.#product(yield* this.#expand(condition, inside), then, path);
    const unmet = yield* this.#exclude(anything, yield* this.wide.#expand(condition, new Set()));
    return [...met, ...(yield* this.#product(unmet, yield* this.#expand(part('else'), inside), path))];
  }

  *#negate(alternatives: readonly Facts[], negated: Located): Sliced<readonly Facts[]> {
    const accepted = yield* this.wide.#expand(negated, new Set());
    const rest = yield* this.#exclude(alternatives, accepted);
    const isForbidden = accepted.some(
      (facts) => Object.keys(facts).length === 1 && facts.kinds.size === allKinds.length,
    );
    // alternatives that cannot be expressed are omitted; if none is left, the author has to know
    if (rest.length > 0 || alternatives.length === 0 || isForbidden || isDerived(negated.path)) return rest;
    return fail(negated.path, 'a negation that constrained decoding cannot enforce');
  }

  /** The alternatives minus what `others` accept. */
  *#exclude(alternatives: readonly Facts[], others: readonly Facts[]): Sliced<readonly Facts[]> {
    const resolve = (conjunction: Conjunction): Sliced<readonly Facts[]> => this.wide.resolve(conjunction);
    let rest = alternatives;
    for (const other of others) {
      const kept: Facts[] = [];
      for (const facts of rest) {
        this.budget.spend(100 + 10 * (sizeOf(facts) + sizeOf(other)));
        if (this.budget.isSliceOver()) yield;
        if (yield* areDisjoint(facts, other, resolve)) kept.push(facts);
        else for (const piece of yield* without(facts, other, this.wide)) kept.push(piece);
      }
      rest = kept;
      if (rest.length > maxAlternatives) {
        this.budget.refuse('alternatives', rest.length, maxAlternatives, 'schemas');
      }
    }
    return rest;
  }

  /** The alternatives of a conjunction of schemas; empty when no value is valid. */
  *resolve(conjunction: Conjunction): Sliced<readonly Facts[]> {
    let alternatives: readonly Facts[] = [{ kinds: new Set(allKinds) }];
    for (const part of conjunction)
      alternatives = yield* this.#product(alternatives, yield* this.#expand(part, new Set()), part.path);
    return alternatives;
  }

  /** The conjunctions of all pairs. @throws {CapacityError} for too many */
  *#product(some: readonly Facts[], others: readonly Facts[], path: string): Sliced<readonly Facts[]> {
    const product: Facts[] = [];
    for (const a of some) {
      for (const b of others) {
        this.budget.spend(50 + 10 * (sizeOf(a) + sizeOf(b)));
        if (this.budget.isSliceOver()) yield;
        const facts = both(a, b);
        if (facts !== undefined) product.push(facts);
      }
    }
    if (product.length > maxAlternatives) {
      this.budget.place = placeOf(path);
      this.budget.refuse('alternatives', product.length, maxAlternatives, 'schemas');
    }
    return product;
  }
}

/** Without the patterns of formats, which are stricter than the formats. */
function withoutNarrowPatterns({ patterns = [], ...facts }: Facts): Facts {
  const kept = patterns.filter(({ isNarrow }) => isNarrow !== true);
  return kept.length === 0 ? facts : { ...facts, patterns: kept };
}

function sizeOf({ shapes = [], required, values, prefix }: Facts): number {
  const numProperties = shapes.reduce((sum, { properties, patterns }) => sum + properties.size + patterns.length, 0);
  return numProperties + (required?.size ?? 0) + (values?.length ?? 0) + (prefix?.length ?? 0);
}

function isPlainReference(schema: Exclude<JsonSchema, boolean>): boolean {
  return schema['$ref'] !== undefined && Object.keys(schema).every((name) => name === '$ref' || isAnnotation(name));
}

/** Maximum nesting of a schema, since its readers recurse. */
const maxDepth = 200;

/** The schemas with `$anchor`, by reference. @throws {CapacityError} for a schema that is nested too deeply */
export function* anchorsOf(root: JsonSchema, budget: WorkBudget): Sliced<ReadonlyMap<string, Located>> {
  const anchors = new Map<string, Located>();
  yield* collectAnchors(root, '#', anchors, 0, budget);
  return anchors;
}

function* collectAnchors(
  value: object | boolean,
  path: string,
  anchors: Map<string, Located>,
  depth: number,
  budget: WorkBudget,
): Sliced<void> {
  if (typeof value === 'boolean') return;
  budget.spend(10);
  budget.place = path;
  if (depth > maxDepth) budget.refuse('levels', depth, maxDepth, 'levels');
  if (budget.isSliceOver()) yield;
  for (const [name, inner] of Object.entries(value)) {
    if (name === '$anchor' && typeof inner === 'string') anchors.set(`#${inner}`, locate(value, path));
    if (typeof inner !== 'object' || inner === null) continue;
    yield* collectAnchors(inner as object, `${path}/${escapePointer(name)}`, anchors, depth + 1, budget);
  }
}

function decode(part: string, path: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return fail(path, `expected a JSON pointer, got ${JSON.stringify(part)}`);
  }
}

function listOf(schema: Exclude<JsonSchema, boolean>, keyword: string, path: string): readonly Located[] {
  const list = schema[keyword];
  if (list === undefined) return [];
  if (!Array.isArray(list) || list.length === 0)
    fail(`${path}/${keyword}`, `expected schemas, got ${JSON.stringify(list)}`);
  return list.map((part, index) => locate(part, `${path}/${keyword}/${index}`));
}

/** Dependent properties: each is absent, or present with all that it requires. */
function* dependenciesOf(schema: Exclude<JsonSchema, boolean>, path: string): Generator<readonly Located[]> {
  for (const keyword of ['dependentRequired', 'dependentSchemas', 'dependencies']) {
    const place = `${path}/${keyword}`;
    const dependencies = schema[keyword] ?? {};
    if (typeof dependencies !== 'object' || Array.isArray(dependencies)) {
      fail(place, `expected an object, got ${JSON.stringify(dependencies)}`);
    }
    for (const [name, asked] of Object.entries(dependencies)) {
      const own = `${place}/${escapePointer(name)}`;
      const present = Array.isArray(asked)
        ? { required: [name, ...(asked as unknown[])] }
        : { required: [name], allOf: [locate(asked, own).schema] };
      yield [
        { schema: { properties: { [name]: false } }, path: derivedPath(own, 'absent') },
        { schema: present, path: derivedPath(own, 'present') },
      ];
    }
  }
}
