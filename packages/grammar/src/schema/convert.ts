/** Converts JSON schemas to grammars. */
import {
  choice,
  literal,
  optional,
  repeat,
  ruleReference,
  sequence,
  type Grammar,
  type CountRange,
  type GrammarNode,
  type Origin,
} from '../grammar.js';
import { usersOf } from '../network/left-recursion.js';
import { prune } from '../network/prune.js';
import { complementDfa, intersectDfa, satisfiesLength, type Dfa } from '../regular/dfa.js';
import {
  declaredNames,
  itemOf,
  propertyOf,
  canonical,
  conjoined,
  distinct,
  type Contained,
  type Conjunction,
  type Facts,
  type JsonSchema,
  allKinds,
} from './facts.js';
import { encodeInString, encodePlain, valueNode } from './json-text.js';
import { nameClasses } from './name-classes.js';
import { numberNode, type NumberWriter } from './number-node.js';
import type { TimeLimit } from '../deadline.js';
import { WorkBudget } from '../work-budget.js';
import { fail, locate, placeOf } from './located.js';
import { filtered, someOf } from './lists.js';
import { anchorsOf, Resolver } from './resolve.js';
import { SharedRules } from './shared-rules.js';
import { anyText, patternsDfa, stringDfa, textsDfa } from './strings.js';
import { meets } from './valid.js';
import { checkOptions, type OptionNames, finish, type Sliced } from '@winnow/tensor';

export interface JsonSchemaOptions {
  /**
   * Whitespace between tokens: `single` allows one space or none; `indented` also allows newlines with up to 20 spaces,
   * in which weak models may get stuck; `none`. Default `single`.
   */
  readonly whitespace?: 'single' | 'indented' | 'none';
  /** Rejects a schema that takes too long. Default: none. */
  readonly deadline?: TimeLimit;
}

const jsonSchemaNames: OptionNames<JsonSchemaOptions> = { whitespace: true, deadline: true };

/**
 * A grammar of JSON texts that the schema accepts. Every text of the grammar is valid. The grammar excludes some valid
 * texts: unusual forms of numbers and formats, such as more than 21 digits. Members come in any order.
 * @throws {FormatError} for keywords that cannot be enforced, with their JSON pointer as `field`, and for schemas
 *   without valid values
 * @throws {CapacityError} for schemas whose grammar would be too large
 */
export function jsonSchemaGrammar(schema: JsonSchema, options: JsonSchemaOptions = {}): Grammar {
  return finish(jsonSchemaGrammarSliced(schema, options));
}

/** The same in slices. */
export function* jsonSchemaGrammarSliced(schema: JsonSchema, options: JsonSchemaOptions = {}): Sliced<Grammar> {
  checkOptions(options, jsonSchemaNames);
  const rules = new Map<string, GrammarNode>();
  rules.set('root', { kind: 'sequence', items: [] }); // the first
  const writer = createSchemaWriter(rules, options);
  rules.set('root', yield* writer.writeSliced(schema));
  return {
    root: 'root',
    rules,
    originOf: (rule) => ({ source: 'JSON schema', field: writer.places.get(rule) ?? '#' }),
  };
}

/** Adds rules for schemas to an existing grammar. */
export interface SchemaWriter {
  readonly rules: Map<string, GrammarNode>;
  /** Whitespace where JSON allows it. */
  readonly space: GrammarNode;
  /** JSON pointers by the rules of their schemas. */
  readonly places: ReadonlyMap<string, string>;
  /**
   * A node that matches the JSON text of valid values. References resolve within the schema. @throws as
   * `jsonSchemaGrammar`
   */
  write(schema: JsonSchema): GrammarNode;
  /** The same in slices. */
  writeSliced(schema: JsonSchema): Sliced<GrammarNode>;
}

/** @param rules receives rules whose names begin with `json-` */
export function createSchemaWriter(rules: Map<string, GrammarNode>, options: JsonSchemaOptions = {}): SchemaWriter {
  checkOptions(options, jsonSchemaNames);
  const places = new Map<string, string>();
  const originOf = (place: string): Origin => {
    const field = place.startsWith('#') ? place : places.get(place); // some steps work on rules
    return { source: 'JSON schema', field: field ?? '#' };
  };
  const budget = new WorkBudget('JSON schema', { deadline: options.deadline, originOf });
  const shared = new SharedRules(rules, options.whitespace ?? 'single', budget);
  let numSchemas = 0;
  function* writeSliced(schema: JsonSchema): Sliced<GrammarNode> {
    const prefix = `json-${numSchemas++}`;
    const { schema: root } = locate(schema, '#');
    const resolver = new Resolver(root, yield* anchorsOf(root, budget), budget);
    const converter = new SchemaConverter(resolver, shared, prefix, places);
    const node = converter.valueOf([{ schema, path: '#' }]);
    yield* converter.finishRules();
    if (!(yield* isProductive(rules, node, budget))) {
      fail('#', 'a schema that accepts no value that can be generated');
    }
    return node;
  }
  return {
    rules,
    space: shared.space,
    places,
    write: (schema) => finish(writeSliced(schema)),
    writeSliced,
  };
}

/** Converts one schema; its references resolve within it. */
class SchemaConverter {
  readonly #rules: SharedRules;
  readonly #resolver: Resolver;
  readonly #prefix: string;
  /** Rules that were referred to and are not written yet. */
  readonly #waiting: { readonly name: string; readonly parts: Conjunction }[] = [];
  /** Rules by the locations of the conjoined schemas. */
  readonly #names = new Map<string, string>();
  /** Automata of strings by their constraints. */
  readonly #strings = new Map<string, GrammarNode>();
  readonly #places: Map<string, string>;
  readonly #numbers: NumberWriter;
  #numAutomata = 0;

  constructor(resolver: Resolver, rules: SharedRules, prefix: string, places: Map<string, string>) {
    this.#places = places;
    this.#rules = rules;
    this.#resolver = resolver;
    this.#prefix = prefix;
    this.#numbers = { rules, automaton: (dfa) => this.#automaton(dfa, encodePlain) };
  }

  /** The rule of a conjunction of schemas: one for each set, so that recursion terminates. */
  valueOf(conjunction: Conjunction): GrammarNode {
    const parts = this.#resolver.follow(conjunction);
    const { budget } = this.#rules;
    if (parts.length === 0) return this.#anything();
    const key = JSON.stringify(parts.map(({ path }) => path).sort());
    const known = this.#names.get(key);
    if (known !== undefined) return ruleReference(known);
    const name = `${this.#prefix}-${this.#names.size}`;
    this.#names.set(key, name);
    const { place } = budget;
    budget.place = placeOf(parts[0]?.path ?? place);
    this.#places.set(name, budget.place);
    this.#rules.set(name, literal('')); // reserved
    budget.place = place;
    this.#waiting.push({ name, parts });
    return ruleReference(name);
  }

  /** Writes the rules that were referred to. */
  *finishRules(): Sliced<void> {
    const { budget } = this.#rules;
    for (let next = this.#waiting.pop(); next !== undefined; next = this.#waiting.pop()) {
      budget.place = placeOf(next.parts[0]?.path ?? '#');
      const alternatives: GrammarNode[] = [];
      for (const facts of yield* this.#resolver.resolve(next.parts)) {
        alternatives.push(yield* this.#factsNode(facts));
        budget.place = placeOf(next.parts[0]?.path ?? '#');
      }
      this.#rules.set(next.name, { kind: 'choice', alternatives });
      if (budget.isSliceOver()) yield;
    }
  }

  #anything(): GrammarNode {
    return this.#rules.shared('json-value', () => finish(this.#factsNode({ kinds: new Set(allKinds) })));
  }

  *#factsNode(facts: Facts): Sliced<GrammarNode> {
    if (facts.values !== undefined) {
      return yield* this.#valuesNode(facts, facts.values);
    }
    const { kinds } = facts;
    const alternatives: GrammarNode[] = [];
    if (kinds.has('object')) alternatives.push(yield* this.#objectNode(facts));
    if (kinds.has('array')) alternatives.push(yield* this.#arrayNode(facts));
    if (kinds.has('string')) alternatives.push(yield* this.#stringNode(facts));
    const isDecimal = kinds.has('decimal') && !(facts.divisors ?? []).some(Number.isInteger);
    if (kinds.has('decimal') || kinds.has('integer'))
      alternatives.push(yield* numberNode(facts, isDecimal, this.#numbers));
    if (kinds.has('boolean')) alternatives.push(choice(literal('true'), literal('false')));
    if (kinds.has('null')) alternatives.push(literal('null'));
    return { kind: 'choice', alternatives };
  }

  *#valuesNode(facts: Facts, values: readonly unknown[]): Sliced<GrammarNode> {
    const nodes = new Map<string, GrammarNode>();
    for (const value of values) {
      if (!(yield* meets(value, { ...facts, values: [value] }, this.#resolver))) continue;
      const text = canonical(value);
      this.#rules.budget.spend(text.length);
      if (!nodes.has(text)) nodes.set(text, valueNode(value, this.#rules.space));
    }
    return { kind: 'choice', alternatives: [...nodes.values()] };
  }

  #automaton(dfa: Dfa, encode: typeof encodePlain): Sliced<GrammarNode> {
    return this.#rules.automaton(dfa, `${this.#prefix}-a${this.#numAutomata++}`, encode);
  }

  *#stringNode(facts: Facts): Sliced<GrammarNode> {
    const { patterns = [], minLength = 0, maxLength } = facts;
    if (patterns.length === 0) {
      if (minLength === 0 && maxLength === undefined) return this.#rules.string();
      const states = [{ edges: [{ item: this.#rules.char(), target: 0 }], isAccepting: true }];
      const text: GrammarNode = { kind: 'automaton', states, ...countsOf(minLength, maxLength) };
      return sequence(literal('"'), text, literal('"'));
    }
    const key = JSON.stringify([
      patterns.map(({ source, isWhole, isNegated }) => [source, isWhole, isNegated]),
      minLength,
      maxLength,
    ]);
    let node = this.#strings.get(key);
    if (node === undefined) {
      node = yield* this.#patternNode(facts);
      this.#strings.set(key, node);
    }
    return sequence(literal('"'), node, literal('"'));
  }

  /** A pattern whose texts may exceed the bounds counts characters: states for every length would be too many. */
  *#patternNode({ patterns = [], minLength = 0, maxLength }: Facts): Sliced<GrammarNode> {
    const { budget } = this.#rules;
    const dfa = yield* patternsDfa(patterns, budget);
    if (dfa === undefined || (yield* satisfiesLength(dfa, minLength, maxLength, budget))) {
      return yield* this.#automaton(dfa ?? anyText, encodeInString);
    }
    return yield* this.#rules.countedAutomaton(dfa, countsOf(minLength, maxLength), encodeInString);
  }

  *#arrayNode(facts: Facts): Sliced<GrammarNode> {
    const { prefix: first = [], minItems = 0, maxItems = Infinity } = facts;
    const comma = sequence(literal(','), this.#rules.space);
    const isFree = maxItems === Infinity;
    if (maxItems < minItems) return { kind: 'choice', alternatives: [] };
    if (facts.unique !== undefined && maxItems > 1) return yield* this.#uniqueItems(facts, facts.unique);
    if (facts.contains !== undefined) return this.#containing(facts, facts.contains);
    const rest = (index: number): GrammarNode => {
      const item = this.valueOf(itemOf(facts, index));
      const min = Math.max(0, minItems - index);
      if (index > 0) return repeat(sequence(comma, item), min, isFree ? undefined : maxItems - index);
      if (maxItems === 0) return literal('');
      const all = sequence(
        item,
        repeat(sequence(comma, item), Math.max(0, min - 1), isFree ? undefined : maxItems - 1),
      );
      return min === 0 ? optional(all) : all;
    };
    let tail: GrammarNode = first.length < maxItems ? rest(first.length) : literal('');
    for (let index = Math.min(first.length, maxItems) - 1; index >= 0; index--) {
      const item = this.valueOf(itemOf(facts, index));
      tail = sequence(...(index === 0 ? [] : [comma]), item, tail);
      if (index >= minItems) tail = optional(tail);
    }
    return sequence(literal('['), this.#rules.space, tail, this.#rules.space, literal(']'));
  }

  /** Items are unique if all values are listed and each occurs at most once. */
  *#uniqueItems(facts: Facts, path: string): Sliced<GrammarNode> {
    const { prefix = [], minItems = 0, maxItems, contains } = facts;
    const isListed = prefix.length === 0 && contains === undefined;
    const values = isListed ? yield* this.#valuesOf(itemOf(facts, 0)) : undefined;
    if (values === undefined) fail(path, 'a grammar can compare items with one another only where an enum lists them');
    const members = values.map((value) => optional(literal(JSON.stringify(value))));
    return this.#unorderedItems(members, countsOf(minItems, maxItems));
  }

  /** All values that schemas accept; undefined when they are not listed. */
  *#valuesOf(conjunction: Conjunction): Sliced<readonly unknown[] | undefined> {
    const found: unknown[] = [];
    for (const facts of yield* this.#resolver.resolve(conjunction)) {
      const isListed = [...facts.kinds].every((kind) => kind === 'boolean' || kind === 'null');
      if (facts.values === undefined && !isListed) return undefined;
      const candidates = facts.values ?? [true, false, null];
      for (const value of candidates) if (yield* meets(value, facts, this.#resolver)) found.push(value);
    }
    return distinct(found);
  }

  /** Required items at any position: `contains`. */
  #containing(facts: Facts, contains: readonly Contained[]): GrammarNode {
    const { prefix = [], minItems = 0, maxItems } = facts;
    const [{ path }] = contains as readonly [Contained];
    if (prefix.length > 0) fail(path, 'constrained decoding supports contains only without prefixItems');
    const own = itemOf(facts, 0);
    const numRequired = contains.reduce((sum, { min }) => sum + min, 0);
    const required = contains.map(({ value, min }) => repeat(this.valueOf(conjoined(own, value)), min));
    const others = repeat(this.valueOf(own), Math.max(0, minItems - numRequired));
    return this.#unorderedItems([...required, others], countsOf(0, maxItems));
  }

  #unorderedItems(members: readonly GrammarNode[], counts: CountRange): GrammarNode {
    const { space } = this.#rules;
    if (members.length === 0) return counts.min === 0 ? literal('[]') : { kind: 'choice', alternatives: [] };
    const separator = sequence(literal(','), space);
    const items: GrammarNode = { kind: 'unordered', separator, members, ...counts };
    return sequence(literal('['), space, items, space, literal(']'));
  }

  *#objectNode(facts: Facts): Sliced<GrammarNode> {
    const { required = new Set<string>(), minProperties = 0, maxProperties, keys } = facts;
    const { space } = this.#rules;
    const declared = [...new Set([...declaredNames(facts), ...required])];
    const keyFacts = keys === undefined ? undefined : yield* this.#resolver.resolve(keys);
    // members that cannot occur need no rules
    const names = keyFacts === undefined ? declared : yield* this.#namesOf(declared, keyFacts);
    const possible = new Set(names);
    if ([...required].some((name) => !possible.has(name))) return { kind: 'choice', alternatives: [] };
    const members: GrammarNode[] = [];
    for (const name of names) {
      const value = this.valueOf(yield* propertyOf(facts, name));
      const node = sequence(literal(`${JSON.stringify(name)}:`), space, value);
      members.push(required.has(name) ? node : optional(node));
    }
    // additional members may repeat a name, so only one of each kind is certain to count
    const others = (yield* this.#otherMembers(facts, declared, keyFacts)).map((node) => repeat(node, 0));
    if (others.length > 0 && minProperties > members.length + others.length) {
      fail(
        `${this.#rules.budget.place}/minProperties`,
        'a grammar cannot ensure that additional properties have different names',
      );
    }
    const counts = countsOf(minProperties, maxProperties);
    const separator = sequence(literal(','), space);
    const all = [...members, ...others];
    if (all.length === 0) return minProperties === 0 ? literal('{}') : { kind: 'choice', alternatives: [] };
    return sequence(
      literal('{'),
      space,
      { kind: 'unordered', separator, members: all, ...counts },
      space,
      literal('}'),
    );
  }

  /** The names that schemas of property names accept. */
  #namesOf(names: readonly string[], keyFacts: readonly Facts[]): Sliced<readonly string[]> {
    return filtered(names, (name) => someOf(keyFacts, (one) => meets(name, one, this.#resolver)));
  }

  /** Members with undeclared names, by the kind of their names. */
  *#otherMembers(
    facts: Facts,
    declared: readonly string[],
    keyFacts: readonly Facts[] | undefined,
  ): Sliced<readonly GrammarNode[]> {
    const names = yield* this.#otherNames(declared, keyFacts);
    if (names === undefined) return [];
    const members: GrammarNode[] = [];
    for (const { dfa, value } of yield* nameClasses(facts, names.dfa, this.#rules.budget)) {
      if ((yield* this.#resolver.resolve(value)).length === 0) continue;
      const key =
        dfa === undefined
          ? this.#rules.string()
          : sequence(literal('"'), yield* this.#automaton(dfa, encodeInString), literal('"'));
      members.push(sequence(key, literal(':'), this.#rules.space, this.valueOf(value)));
    }
    return members;
  }

  /** Names that are not declared: an automaton, or all; undefined when there are none. */
  *#otherNames(
    declared: readonly string[],
    keyFacts: readonly Facts[] | undefined,
  ): Sliced<{ readonly dfa: Dfa | undefined } | undefined> {
    const { budget } = this.#rules;
    const dfa = declared.length === 0 ? undefined : yield* complementDfa(yield* textsDfa(declared, budget), budget);
    if (keyFacts === undefined) return { dfa };
    const [only] = keyFacts;
    if (only === undefined) return undefined;
    if (keyFacts.length > 1) {
      fail(`${budget.place}/propertyNames`, 'expected a single schema of property names, got several');
    }
    const texts = only.values?.filter((name) => typeof name === 'string');
    const names = texts && (yield* filtered(texts, (name) => meets(name, only, this.#resolver)));
    const own = yield* names === undefined ? stringDfa(only, budget) : textsDfa(names, budget);
    return { dfa: own === undefined || dfa === undefined ? (own ?? dfa) : yield* intersectDfa(dfa, own, budget) };
  }
}

function countsOf(min: number, max: number | undefined): CountRange {
  return max === undefined ? { min } : { min, max };
}

function* isProductive(
  rules: ReadonlyMap<string, GrammarNode>,
  node: GrammarNode,
  budget: WorkBudget,
): Sliced<boolean> {
  const all = new Map([...rules, [' ', node]]);
  const users = yield* usersOf(all, budget);
  const pruned = (yield* prune({ root: ' ', rules: all }, users, budget)).rules.get(' ');
  return !(pruned?.kind === 'choice' && pruned.alternatives.length === 0);
}
