/** Resolves schemas to facts: follows references, distributes alternatives, rejects unknown keywords. */
import { CapacityError } from '@winnow/tensor';
import { allKinds, both, type Conjunction, type Facts, type JsonSchema, type Located } from './facts.js';
import { areDisjoint } from './disjoint.js';
import { annotations, escapePointer, factsOf, fail, locate } from './keywords.js';

/** Maximum number of alternatives that nested combinators may expand to. */
const maxAlternatives = 1000;

export class Resolver {
  readonly #root: JsonSchema;
  readonly #anchors = new Map<string, Located>();
  /** Locations of the schemas whose branches are being compared. */
  readonly #checking = new Set<string>();

  constructor(root: JsonSchema) {
    this.#root = root;
    collectAnchors(root, '#', this.#anchors, 0);
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

  /** A conjunction with plain references replaced by their targets. */
  follow(conjunction: Conjunction): Conjunction {
    const result = new Map<string, Located>();
    for (const part of conjunction) {
      let { schema, path } = part;
      const seen = new Set<string>();
      while (typeof schema === 'object' && isPlainReference(schema)) {
        if (seen.has(path)) fail(path, 'a reference cycle');
        seen.add(path);
        ({ schema, path } = this.#target(schema['$ref'], `${path}/$ref`));
      }
      if (schema !== true) result.set(path, { schema, path });
    }
    return [...result.values()];
  }

  #expand({ schema, path }: Located, open: ReadonlySet<string>): readonly Facts[] {
    if (schema === true) return [{ kinds: new Set(allKinds) }];
    if (schema === false) return [];
    if (open.has(path)) fail(path, 'a schema that refers to itself without consuming a value');
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
    if (schema['$ref'] !== undefined) and(this.#expand(this.#target(schema['$ref'], `${path}/$ref`), inside));
    for (const part of listOf(schema, 'allOf', path)) and(this.#expand(part, inside));
    if (schema['anyOf'] !== undefined) and(listOf(schema, 'anyOf', path).flatMap((part) => this.#expand(part, inside)));
    if (schema['oneOf'] !== undefined) {
      const branches = listOf(schema, 'oneOf', path).map((part) => this.#expand(part, inside));
      this.#checkExclusive(branches, alternatives, path);
      and(branches.flat());
    }
    return alternatives;
  }

  /** A value that matches two branches of oneOf is invalid, so a grammar requires mutually exclusive branches. */
  #checkExclusive(branches: readonly (readonly Facts[])[], common: readonly Facts[], path: string): void {
    if (this.#checking.has(path)) return; // the search for a difference has reached the same pair again
    this.#checking.add(path);
    for (const [index, branch] of branches.entries()) {
      for (const other of branches.slice(index + 1)) {
        for (const [a, b] of branch.flatMap((one) => other.map((two) => [one, two] as const))) {
          if (
            areDisjoint(a, b, (conjunction) => this.resolve(conjunction)) ||
            common.every((own) => this.#isNever(own, a, b))
          )
            continue;
          const expected = 'mutually exclusive alternatives, by type or by a constant property';
          fail(`${path}/oneOf`, `expected ${expected} (or anyOf)`);
        }
      }
    }
    this.#checking.delete(path);
  }

  #isNever(own: Facts, a: Facts, b: Facts): boolean {
    const first = both(own, a);
    const second = both(own, b);
    return (
      first === undefined ||
      second === undefined ||
      areDisjoint(first, second, (conjunction) => this.resolve(conjunction))
    );
  }

  /** The alternatives of a conjunction of schemas; empty when no value is valid. */
  resolve(conjunction: Conjunction): readonly Facts[] {
    let alternatives: readonly Facts[] = [{ kinds: new Set(allKinds) }];
    for (const part of conjunction) {
      const own = this.#expand(part, new Set());
      alternatives = alternatives.flatMap((a) => own.flatMap((b) => both(a, b) ?? []));
      if (alternatives.length > maxAlternatives) {
        const [needed, available] = [alternatives.length, maxAlternatives];
        throw new CapacityError({ resource: `alternatives of ${part.path}`, needed, available, unit: 'schemas' });
      }
    }
    return alternatives;
  }
}

function isPlainReference(schema: Exclude<JsonSchema, boolean>): boolean {
  return schema['$ref'] !== undefined && Object.keys(schema).every((name) => name === '$ref' || annotations.has(name));
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

function listOf(schema: Exclude<JsonSchema, boolean>, keyword: string, path: string): readonly Located[] {
  const list = schema[keyword];
  if (list === undefined) return [];
  if (!Array.isArray(list) || list.length === 0)
    fail(`${path}/${keyword}`, `expected schemas, got ${JSON.stringify(list)}`);
  return list.map((part, index) => locate(part, `${path}/${keyword}/${index}`));
}
