/** Resolves schemas to facts: follows references, distributes alternatives, rejects unknown keywords. */
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
  readonly #anchors = new Map<string, Located>();
  /** Alternatives by the location of a schema. */
  readonly #expanded = new Map<string, readonly Facts[]>();

  /**
   * A resolver of supersets: it keeps branches of `oneOf` that overlap and ignores negations. Other resolvers give
   * subsets of what a schema accepts.
   */
  readonly wide: Resolver;

  /** @param isWide see `wide` */
  constructor(root: JsonSchema, budget: WorkBudget, isWide = false) {
    this.budget = budget;
    this.wide = isWide ? this : new Resolver(root, budget, true);
    this.#root = root;
    this.#ignoresSiblings = typeof root === 'object' && /\/draft-0[3-7]\//.test(String(root['$schema']));
    collectAnchors(root, '#', this.#anchors, 0, budget);
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
  #expand(located: Located, open: ReadonlySet<string>): readonly Facts[] {
    const known = this.#expanded.get(located.path);
    if (known !== undefined) return known;
    const alternatives = this.#expandOnce(located, open);
    this.#expanded.set(located.path, alternatives);
    return alternatives;
  }

  #expandOnce({ schema, path }: Located, open: ReadonlySet<string>): readonly Facts[] {
    if (schema === true) return [{ kinds: new Set(allKinds) }];
    if (schema === false) return [];
    if (open.has(path)) fail(path, 'a schema that refers to itself without consuming a value');
    const inside = new Set(open).add(path);
    if (this.#isLoneReference(schema)) {
      return this.#expand(this.#target(schema['$ref'], `${path}/$ref`), new Set(open).add(path));
    }
    let alternatives: readonly Facts[] = factsOf(schema, path, this.budget);
    const and = (more: readonly Facts[]): void => {
      alternatives = this.#product(alternatives, more, path);
    };
    if (schema['$ref'] !== undefined) and(this.#expand(this.#target(schema['$ref'], `${path}/$ref`), inside));
    for (const part of listOf(schema, 'allOf', path)) and(this.#expand(part, inside));
    if (schema['anyOf'] !== undefined) and(listOf(schema, 'anyOf', path).flatMap((part) => this.#expand(part, inside)));
    for (const choices of dependenciesOf(schema, path)) {
      and(choices.flatMap((part) => this.#expand(part, inside)));
    }
    const oneOf = schema['oneOf'] === undefined ? undefined : listOf(schema, 'oneOf', path);
    if (this.wide === this) {
      if (oneOf !== undefined) and(oneOf.flatMap((part) => this.#expand(part, inside)));
      return alternatives.map(withoutNarrowPatterns);
    }
    if (schema['if'] !== undefined && (schema['then'] ?? schema['else']) !== undefined)
      and(this.#conditional(schema, path, inside));
    if (oneOf !== undefined) alternatives = this.#exactlyOne(alternatives, oneOf, path, inside);
    if (schema['not'] !== undefined) alternatives = this.#negate(alternatives, locate(schema['not'], `${path}/not`));
    return alternatives;
  }

  /** What one branch accepts and no other one does. */
  #exactlyOne(
    common: readonly Facts[],
    branches: readonly Located[],
    path: string,
    inside: ReadonlySet<string>,
  ): readonly Facts[] {
    const accepted = branches.map((branch) => this.wide.#expand(branch, new Set()));
    const result = branches.flatMap((branch, index) => {
      const own = this.#product(common, this.#expand(branch, inside), path);
      return accepted.reduce<readonly Facts[]>(
        (rest, others, other) => (other === index ? rest : this.#exclude(rest, others)),
        own,
      );
    });
    if (result.length > 0 || common.length === 0 || accepted.every(({ length }) => length === 0)) return result;
    const expected = 'mutually exclusive alternatives, by type or by a constant property';
    return fail(`${path}/oneOf`, `expected ${expected} (or anyOf)`);
  }

  /** What satisfies `if` and `then`, or `else` but not `if`. */
  #conditional(schema: Exclude<JsonSchema, boolean>, path: string, inside: ReadonlySet<string>): readonly Facts[] {
    const part = (keyword: string): Located => locate(schema[keyword] ?? true, `${path}/${keyword}`);
    const anything: readonly Facts[] = [{ kinds: new Set(allKinds) }];
    const condition = part('if');
    const met = this.#product(this.#expand(condition, inside), this.#expand(part('then'), inside), path);
    const unmet = this.#exclude(anything, this.wide.#expand(condition, new Set()));
    return [...met, ...this.#product(unmet, this.#expand(part('else'), inside), path)];
  }

  #negate(alternatives: readonly Facts[], negated: Located): readonly Facts[] {
    const accepted = this.wide.#expand(negated, new Set());
    const rest = this.#exclude(alternatives, accepted);
    const isForbidden = accepted.some(
      (facts) => Object.keys(facts).length === 1 && facts.kinds.size === allKinds.length,
    );
    // alternatives that cannot be expressed are omitted; if none is left, the author has to know
    if (rest.length > 0 || alternatives.length === 0 || isForbidden || isDerived(negated.path)) return rest;
    return fail(negated.path, 'a negation that constrained decoding cannot enforce');
  }

  /** The alternatives minus what `others` accept. */
  #exclude(alternatives: readonly Facts[], others: readonly Facts[]): readonly Facts[] {
    const resolve = (conjunction: Conjunction): readonly Facts[] => this.wide.resolve(conjunction);
    let rest = alternatives;
    for (const other of others) {
      rest = rest.flatMap((facts) => {
        this.budget.spend(100 + 10 * (sizeOf(facts) + sizeOf(other)));
        return areDisjoint(facts, other, resolve) ? [facts] : without(facts, other, this.wide);
      });
      if (rest.length > maxAlternatives) {
        this.budget.refuse('alternatives', rest.length, maxAlternatives, 'schemas');
      }
    }
    return rest;
  }

  /** The alternatives of a conjunction of schemas; empty when no value is valid. */
  resolve(conjunction: Conjunction): readonly Facts[] {
    let alternatives: readonly Facts[] = [{ kinds: new Set(allKinds) }];
    for (const part of conjunction)
      alternatives = this.#product(alternatives, this.#expand(part, new Set()), part.path);
    return alternatives;
  }

  /** The conjunctions of all pairs. @throws {CapacityError} for too many */
  #product(some: readonly Facts[], others: readonly Facts[], path: string): readonly Facts[] {
    const product: Facts[] = [];
    for (const a of some) {
      for (const b of others) {
        this.budget.spend(50 + 10 * (sizeOf(a) + sizeOf(b)));
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

function collectAnchors(
  value: unknown,
  path: string,
  anchors: Map<string, Located>,
  depth: number,
  budget: WorkBudget,
): void {
  if (typeof value !== 'object' || value === null) return;
  budget.spend(5);
  budget.place = path;
  if (depth > maxDepth) budget.refuse('levels', depth, maxDepth, 'levels');
  for (const [name, inner] of Object.entries(value)) {
    if (name === '$anchor' && typeof inner === 'string') anchors.set(`#${inner}`, locate(value, path));
    collectAnchors(inner, `${path}/${escapePointer(name)}`, anchors, depth + 1, budget);
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
