/** Converts JSON schemas to grammars. */
import {
  choice,
  literal,
  optional,
  repeat,
  ruleReference,
  sequence,
  type Grammar,
  type GrammarNode,
} from '../grammar.js';
import { usersOf } from '../network/left-recursion.js';
import { prune } from '../network/prune.js';
import { complementDfa, intersectDfa, multipleDfa, type Dfa } from '../regular/dfa.js';
import { wholeRegexDfa } from '../regular/regex.js';
import {
  declaredNames,
  generatedKinds,
  itemOf,
  propertyOf,
  type Conjunction,
  type Facts,
  type JsonSchema,
  type Kind,
  allKinds,
} from './facts.js';
import { encodeInString, encodePlain } from './json-text.js';
import { MemberList } from './member-list.js';
import { nameClasses } from './name-classes.js';
import { anyDecimal, decimalRegex, integerRegex } from './numbers.js';
import { WorkBudget } from '../work-budget.js';
import { fail, locate, placeOf } from './located.js';
import { Resolver } from './resolve.js';
import { SharedRules } from './shared-rules.js';
import { stringDfa, textsDfa } from './strings.js';
import { meets } from './valid.js';

export interface JsonSchemaOptions {
  /**
   * Whitespace between tokens: `single` allows one space or none; `indented` also allows newlines with up to 20 spaces,
   * in which weak models may get stuck; `none`. Default `single`.
   */
  readonly whitespace?: 'single' | 'indented' | 'none';
}

/**
 * A grammar of JSON texts that the schema accepts. Every text of the grammar is valid. The grammar excludes some valid
 * texts: members in another order than declared, and unusual forms of numbers and formats (more than 19 digits, leap
 * days). For a schema without `type` but with keywords of some types, only these types are generated.
 * @throws {FormatError} for keywords that cannot be enforced, with their JSON pointer as `field`, and for schemas
 *   without valid values
 * @throws {CapacityError} for schemas whose grammar would be too large
 */
export function jsonSchemaGrammar(schema: JsonSchema, options: JsonSchemaOptions = {}): Grammar {
  const rules = new Map<string, GrammarNode>();
  rules.set('root', { kind: 'sequence', items: [] }); // the first
  rules.set('root', createSchemaWriter(rules, options).write(schema));
  return { root: 'root', rules };
}

/** Adds rules for schemas to an existing grammar. */
export interface SchemaWriter {
  readonly rules: Map<string, GrammarNode>;
  /** Whitespace where JSON allows it. */
  readonly space: GrammarNode;
  /**
   * A node that matches the JSON text of valid values. References resolve within the schema. @throws as
   * `jsonSchemaGrammar`
   */
  write(schema: JsonSchema): GrammarNode;
}

/** @param rules receives rules whose names begin with `json-` */
export function createSchemaWriter(rules: Map<string, GrammarNode>, options: JsonSchemaOptions = {}): SchemaWriter {
  const budget = new WorkBudget('JSON schema');
  const shared = new SharedRules(rules, options.whitespace ?? 'single', budget);
  let numSchemas = 0;
  return {
    rules,
    space: shared.space,
    write(schema): GrammarNode {
      const converter = new SchemaConverter(locate(schema, '#').schema, shared, `json-${numSchemas++}`);
      const node = converter.valueOf([{ schema, path: '#' }]);
      if (!isProductive(rules, node, budget)) fail('#', 'a schema that accepts no value that can be generated');
      return node;
    },
  };
}

/** Converts one schema; its references resolve within it. */
class SchemaConverter {
  readonly #rules: SharedRules;
  readonly #resolver: Resolver;
  readonly #prefix: string;
  /** Rules by the locations of the conjoined schemas. */
  readonly #names = new Map<string, string>();
  /** Automata of strings by their constraints. */
  readonly #strings = new Map<string, GrammarNode>();
  #numAutomata = 0;

  constructor(root: JsonSchema, rules: SharedRules, prefix: string) {
    this.#rules = rules;
    this.#resolver = new Resolver(root, rules.budget);
    this.#prefix = prefix;
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
    this.#rules.set(name, literal(''));
    const alternatives = this.#resolver.resolve(parts).map((facts) => this.#factsNode(facts, name));
    this.#rules.set(name, { kind: 'choice', alternatives });
    budget.place = place;
    return ruleReference(name);
  }

  #anything(): GrammarNode {
    return this.#rules.shared('json-value', () => this.#factsNode({ kinds: new Set(allKinds) }, 'json-any'));
  }

  #factsNode(facts: Facts, name: string): GrammarNode {
    if (facts.values !== undefined) {
      const valid = facts.values.filter((value) => meets(value, { ...facts, values: [value] }, this.#resolver));
      return { kind: 'choice', alternatives: [...new Set(valid.map((value) => JSON.stringify(value)))].map(literal) };
    }
    const kinds = generatedKinds(facts);
    const alternatives: GrammarNode[] = [];
    const add = (kind: Kind, node: () => GrammarNode): void => void (kinds.has(kind) && alternatives.push(node()));
    add('object', () => this.#objectNode(facts, name));
    add('array', () => this.#arrayNode(facts));
    add('string', () => this.#stringNode(facts));
    if (kinds.has('decimal')) alternatives.push(this.#numberNode(facts, (facts.divisors ?? []).length === 0));
    else if (kinds.has('integer')) alternatives.push(this.#numberNode(facts, false));
    add('boolean', () => choice(literal('true'), literal('false')));
    add('null', () => literal('null'));
    return { kind: 'choice', alternatives };
  }

  #automaton(dfa: Dfa, encode: typeof encodePlain): GrammarNode {
    return this.#rules.automaton(dfa, `${this.#prefix}-a${this.#numAutomata++}`, encode);
  }

  #stringNode(facts: Facts): GrammarNode {
    const { patterns = [], minLength = 0, maxLength } = facts;
    if (patterns.length === 0) {
      if (minLength === 0 && maxLength === undefined) return this.#rules.string();
      if (maxLength !== undefined && maxLength < minLength) return { kind: 'choice', alternatives: [] };
      return sequence(literal('"'), repeat(this.#rules.char(), minLength, maxLength), literal('"'));
    }
    const key = JSON.stringify([
      patterns.map(({ source, isWhole, isNegated }) => [source, isWhole, isNegated]),
      minLength,
      maxLength,
    ]);
    let node = this.#strings.get(key);
    if (node === undefined) {
      node = this.#automaton(stringDfa(facts, this.#rules.budget) as Dfa, encodeInString);
      this.#strings.set(key, node);
    }
    return sequence(literal('"'), node, literal('"'));
  }

  #numberNode({ minimum, maximum, divisors = [] }: Facts, isDecimal: boolean): GrammarNode {
    if (isDecimal && minimum === undefined && maximum === undefined) {
      return this.#rules.shared('json-number', () =>
        this.#rules.automaton(wholeRegexDfa(anyDecimal, this.#rules.budget), 'json-n', encodePlain),
      );
    }
    const regex = isDecimal ? decimalRegex(minimum, maximum) : integerRegex(minimum, maximum, divisors.length > 0);
    if (regex === undefined) return { kind: 'choice', alternatives: [] };
    const { budget } = this.#rules;
    const dfa = divisors.reduce(
      (rest, divisor) => intersectDfa(rest, multipleDfa(divisor, budget), budget),
      wholeRegexDfa(regex, budget),
    );
    return this.#automaton(dfa, encodePlain);
  }

  #arrayNode(facts: Facts): GrammarNode {
    const { prefix: first = [], minItems = 0, maxItems = Infinity } = facts;
    const comma = sequence(literal(','), this.#rules.space);
    const isFree = maxItems === Infinity;
    if (maxItems < minItems) return { kind: 'choice', alternatives: [] };
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

  #objectNode(facts: Facts, ruleName: string): GrammarNode {
    const { required = new Set<string>(), minProperties = 0, maxProperties = Infinity, keys } = facts;
    const declared = [...new Set([...declaredNames(facts), ...required])];
    const keyFacts = keys === undefined ? undefined : this.#resolver.resolve(keys);
    const isKey = (name: string): boolean => keyFacts?.some((one) => meets(name, one, this.#resolver)) ?? true;
    const members = declared.map((name) => ({
      name,
      isRequired: required.has(name),
      // a separate rule only for members that can occur
      node: isKey(name)
        ? sequence(literal(`${JSON.stringify(name)}:`), this.#rules.space, this.valueOf(propertyOf(facts, name)))
        : undefined,
    }));
    const others = this.#otherMembers(facts, declared, keyFacts);
    // additional members may repeat a name, so only one of them is certain to count
    if (others !== undefined && minProperties > members.length + 1) {
      fail(
        `${this.#rules.budget.place}/minProperties`,
        'a grammar cannot ensure that additional properties have different names',
      );
    }
    const base = `${ruleName}-o${this.#numAutomata++}`;
    const inside = new MemberList(this.#rules, base, { members, others, minProperties, maxProperties }).from(0, 0);
    return sequence(literal('{'), this.#rules.space, inside, this.#rules.space, literal('}'));
  }

  /** Members with undeclared names; undefined when there can be none. */
  #otherMembers(
    facts: Facts,
    declared: readonly string[],
    keyFacts: readonly Facts[] | undefined,
  ): GrammarNode | undefined {
    const names = this.#otherNames(declared, keyFacts);
    if (names === undefined) return undefined;
    const alternatives: GrammarNode[] = [];
    for (const { dfa, value } of nameClasses(facts, names.dfa, this.#rules.budget)) {
      if (this.#resolver.resolve(value).length === 0) continue;
      const key =
        dfa === undefined
          ? this.#rules.string()
          : sequence(literal('"'), this.#automaton(dfa, encodeInString), literal('"'));
      alternatives.push(sequence(key, literal(':'), this.#rules.space, this.valueOf(value)));
    }
    return alternatives.length === 0 ? undefined : choice(...alternatives);
  }

  /** Names that are not declared: an automaton, or all; undefined when there are none. */
  #otherNames(
    declared: readonly string[],
    keyFacts: readonly Facts[] | undefined,
  ): { readonly dfa: Dfa | undefined } | undefined {
    const { budget } = this.#rules;
    const dfa = declared.length === 0 ? undefined : complementDfa(textsDfa(declared, budget), budget);
    if (keyFacts === undefined) return { dfa };
    const [only] = keyFacts;
    if (only === undefined) return undefined;
    if (keyFacts.length > 1) {
      fail(`${budget.place}/propertyNames`, 'expected a single schema of property names, got several');
    }
    const names = only.values?.filter((name) => typeof name === 'string' && meets(name, only, this.#resolver));
    const own = names === undefined ? stringDfa(only, budget) : textsDfa(names as string[], budget);
    return { dfa: own === undefined || dfa === undefined ? (own ?? dfa) : intersectDfa(dfa, own, budget) };
  }
}

function isProductive(rules: ReadonlyMap<string, GrammarNode>, node: GrammarNode, budget: WorkBudget): boolean {
  const all = new Map([...rules, [' ', node]]);
  const pruned = prune({ root: ' ', rules: all }, usersOf(all, budget), budget).rules.get(' ');
  return !(pruned?.kind === 'choice' && pruned.alternatives.length === 0);
}
