/** JSON schemas as grammars. */
import { CapacityError } from '@winnow/tensor';
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
import { prune } from '../prune.js';
import { complementDfa, intersectDfa, multipleDfa, type Dfa } from '../regular/dfa.js';
import { wholeRegexDfa } from '../regular/regex.js';
import { itemOf, propertyOf, type Conjunction, type Facts, type JsonSchema, type Kind, allKinds } from './facts.js';
import { automatonRules, charNode, encodeInString, encodePlain, spaceNodes } from './json-text.js';
import { anyDecimal, decimalRegex, integerRegex } from './numbers.js';
import { createResolver, fail, locate } from './resolve.js';
import { stringDfa, textsDfa } from './strings.js';
import { meets } from './valid.js';

export interface JsonSchemaOptions {
  /**
   * Blanks between the parts: `single`, one or none as the model likes; `indented`, new lines with up to 20 blanks too, which
   * weak models lose themselves in; `none`. Default `single`.
   */
  readonly whitespace?: 'single' | 'indented' | 'none';
}

/** Most rules that a schema may come to. */
const maxRules = 50_000;
const maxRulesResource = 'rules of a JSON schema';

/** Adds rules for schemas to a grammar that has others. */
export interface SchemaWriter {
  readonly rules: Map<string, GrammarNode>;
  /** Blanks, where JSON allows them. */
  readonly space: GrammarNode;
  /** What matches the JSON texts of valid values. References of the schema are to itself. @throws as `jsonSchemaGrammar` */
  write(schema: JsonSchema): GrammarNode;
}

/**
 * A grammar of JSON texts that the schema accepts. Every text of the grammar is valid; of the valid texts, those are left out
 * that have members in another order than declared, and numbers and formats in unusual forms (more than 16 digits, leap days).
 * Where a schema without `type` has keywords of some types, only these types are written.
 * @throws {FormatError} for keywords that cannot be enforced, with their place as `field`, and for schemas without valid values
 * @throws {CapacityError} for schemas that become too large
 */
export function jsonSchemaGrammar(schema: JsonSchema, options: JsonSchemaOptions = {}): Grammar {
  const rules = new Map<string, GrammarNode>();
  rules.set('root', { kind: 'sequence', items: [] }); // the first
  rules.set('root', createSchemaWriter(rules, options).write(schema));
  return { root: 'root', rules };
}

/** @param rules gets rules whose names begin with `json-` */
export function createSchemaWriter(rules: Map<string, GrammarNode>, options: JsonSchemaOptions = {}): SchemaWriter {
  let numSchemas = 0;
  const space = shared('json-space', () => spaceNodes[options.whitespace ?? 'single']);
  const string = (): GrammarNode =>
    shared('json-string', () => sequence(literal('"'), repeat(char(), 0), literal('"')));
  const char = (): GrammarNode => shared('json-char', () => charNode);

  function set(name: string, node: GrammarNode): void {
    if (rules.size >= maxRules) {
      throw new CapacityError({
        resource: maxRulesResource,
        needed: rules.size + 1,
        available: maxRules,
        unit: 'rules',
      });
    }
    rules.set(name, node);
  }

  function shared(name: string, make: () => GrammarNode): GrammarNode {
    if (!rules.has(name)) {
      set(name, literal('')); // its place, for rules that refer to it while it is made
      set(name, make());
    }
    return ruleReference(name);
  }

  return {
    rules,
    space,
    write(schema): GrammarNode {
      const node = createConverter(locate(schema, '#').schema, `json-${numSchemas++}`).valueOf([{ schema, path: '#' }]);
      if (!isProductive(rules, node)) fail('#', 'a schema that accepts no value that could be written');
      return node;
    },
  };

  function createConverter(root: JsonSchema, prefix: string): { valueOf(conjunction: Conjunction): GrammarNode } {
    const resolver = createResolver(root);
    const names = new Map<string, string>();
    let numAutomata = 0;

    /** The rule of schemas that hold together: one for each set of them, so that recursion ends. */
    function valueOf(conjunction: Conjunction): GrammarNode {
      const parts = resolver.follow(conjunction);
      if (parts.length === 0) return anything();
      const key = JSON.stringify(parts.map(({ path }) => path).sort());
      const known = names.get(key);
      if (known !== undefined) return ruleReference(known);
      const name = `${prefix}-${names.size}`;
      names.set(key, name);
      set(name, literal(''));
      const alternatives = resolver.resolve(parts).map((facts) => factsNode(facts, name));
      set(name, { kind: 'choice', alternatives });
      return ruleReference(name);
    }

    function anything(): GrammarNode {
      return shared('json-value', () => factsNode({ kinds: new Set(allKinds) }, 'json-any'));
    }

    function factsNode(facts: Facts, name: string): GrammarNode {
      if (facts.values !== undefined) {
        const valid = facts.values.filter((value) => meets(value, { ...facts, values: [value] }, resolver));
        return { kind: 'choice', alternatives: [...new Set(valid.map((value) => JSON.stringify(value)))].map(literal) };
      }
      const { kinds } = facts;
      const alternatives: GrammarNode[] = [];
      const add = (kind: Kind, node: () => GrammarNode): void => void (kinds.has(kind) && alternatives.push(node()));
      add('object', () => objectNode(facts, name));
      add('array', () => arrayNode(facts));
      add('string', () => stringNode(facts));
      if (kinds.has('decimal')) alternatives.push(numberNode(facts, (facts.divisors ?? []).length === 0));
      else if (kinds.has('integer')) alternatives.push(numberNode(facts, false));
      add('boolean', () => choice(literal('true'), literal('false')));
      add('null', () => literal('null'));
      return { kind: 'choice', alternatives };
    }

    function automaton(dfa: Dfa, encode: typeof encodePlain): GrammarNode {
      const node = automatonRules(dfa, rules, `${prefix}-a${numAutomata++}`, encode);
      if (rules.size > maxRules) {
        throw new CapacityError({ resource: maxRulesResource, needed: rules.size, available: maxRules, unit: 'rules' });
      }
      return node;
    }

    function stringNode(facts: Facts): GrammarNode {
      const { patterns = [], minLength = 0, maxLength } = facts;
      if (patterns.length === 0) {
        if (minLength === 0 && maxLength === undefined) return string();
        if (maxLength !== undefined && maxLength < minLength) return { kind: 'choice', alternatives: [] };
        return sequence(literal('"'), repeat(char(), minLength, maxLength), literal('"'));
      }
      return sequence(literal('"'), automaton(stringDfa(facts) as Dfa, encodeInString), literal('"'));
    }

    function numberNode({ minimum, maximum, divisors = [] }: Facts, isDecimal: boolean): GrammarNode {
      if (isDecimal && minimum === undefined && maximum === undefined) {
        return shared('json-number', () => regexNode('json-n', anyDecimal));
      }
      const regex = isDecimal ? decimalRegex(minimum, maximum) : integerRegex(minimum, maximum);
      if (regex === undefined) return { kind: 'choice', alternatives: [] };
      const dfa = divisors.reduce((rest, divisor) => intersectDfa(rest, multipleDfa(divisor)), wholeRegexDfa(regex));
      return automaton(dfa, encodePlain);
    }

    function regexNode(name: string, source: string): GrammarNode {
      return automatonRules(wholeRegexDfa(source), rules, name, encodePlain);
    }

    function arrayNode(facts: Facts): GrammarNode {
      const { prefix: first = [], minItems = 0, maxItems = Infinity } = facts;
      const comma = sequence(literal(','), space);
      const isFree = maxItems === Infinity;
      if (maxItems < minItems) return { kind: 'choice', alternatives: [] };
      const rest = (index: number): GrammarNode => {
        const item = valueOf(itemOf(facts, index));
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
        const item = valueOf(itemOf(facts, index));
        tail = sequence(...(index === 0 ? [] : [comma]), item, tail);
        if (index >= minItems) tail = optional(tail);
      }
      return sequence(literal('['), space, tail, space, literal(']'));
    }

    function objectNode(facts: Facts, ruleName: string): GrammarNode {
      const { required = new Set<string>(), minProperties = 0, maxProperties = Infinity, keys } = facts;
      const declared = new Map<string, Conjunction>(facts.properties ?? []);
      for (const name of required) if (!declared.has(name)) declared.set(name, propertyOf(facts, name));
      const keyFacts = keys === undefined ? undefined : resolver.resolve(keys);
      const isKey = (name: string): boolean => keyFacts?.some((one) => meets(name, one, resolver)) ?? true;
      const members = [...declared].map(([name, value]) => ({
        name,
        isRequired: required.has(name),
        // a rule of its own only for members that can be
        node: isKey(name) ? sequence(literal(`${JSON.stringify(name)}:`), space, valueOf(value)) : undefined,
      }));
      const others = otherMembers(facts, [...declared.keys()], keyFacts);
      // an additional member may come twice, so only one of them is sure to count
      if (others !== undefined && minProperties > members.length + 1) {
        fail(
          `${keywordPath(facts)}/minProperties`,
          'a grammar cannot see to it that additional properties have different names',
        );
      }
      const most = Math.max(minProperties, maxProperties === Infinity ? 0 : maxProperties + 1);
      const comma = sequence(literal(','), space);
      const base = `${ruleName}-o${numAutomata++}`;

      /** From member `index` on, when `count` have been written (counted up to `most`, at least whether there are any). */
      function from(index: number, count: number): GrammarNode {
        const key = `${base}-${index}-${count}`;
        return shared(key, () => {
          const separate = (node: GrammarNode): GrammarNode => (count === 0 ? node : sequence(comma, node));
          const next = Math.min(count + 1, Math.max(1, most));
          const member = members[index];
          if (member === undefined) return end(count, separate, next);
          const alternatives: GrammarNode[] = [];
          if (member.node !== undefined && count < maxProperties) {
            alternatives.push(sequence(separate(member.node), from(index + 1, next)));
          }
          if (!member.isRequired) alternatives.push(from(index + 1, count));
          return { kind: 'choice', alternatives };
        });
      }

      function end(count: number, separate: (node: GrammarNode) => GrammarNode, next: number): GrammarNode {
        const alternatives: GrammarNode[] = count >= minProperties ? [literal('')] : [];
        if (others !== undefined && count < maxProperties && next >= minProperties) {
          const room = maxProperties === Infinity ? undefined : maxProperties - count - 1;
          alternatives.push(sequence(separate(others), repeat(sequence(comma, others), 0, room)));
        }
        return { kind: 'choice', alternatives };
      }

      return sequence(literal('{'), space, from(0, 0), space, literal('}'));
    }

    /** Members with other names; undefined when there may be none. */
    function otherMembers(
      facts: Facts,
      declared: readonly string[],
      keyFacts: readonly Facts[] | undefined,
    ): GrammarNode | undefined {
      const value = facts.additional ?? [];
      if (resolver.resolve(value).length === 0) return undefined;
      let dfa: Dfa | undefined = declared.length === 0 ? undefined : complementDfa(textsDfa(declared));
      if (keyFacts !== undefined) {
        if (keyFacts.length === 0) return undefined;
        const [only] = keyFacts;
        if (keyFacts.length > 1 || only === undefined)
          fail(`${keywordPath(facts)}/propertyNames`, 'expected one kind of names, got several');
        const names = only.values?.filter((name) => typeof name === 'string' && meets(name, only, resolver));
        const own = names === undefined ? stringDfa(only) : textsDfa(names as string[]);
        if (own !== undefined) dfa = dfa === undefined ? own : intersectDfa(dfa, own);
      }
      const key = dfa === undefined ? string() : sequence(literal('"'), automaton(dfa, encodeInString), literal('"'));
      return sequence(key, literal(':'), space, valueOf(value));
    }

    return { valueOf };
  }
}

/** Where a schema stands, as far as facts know. */
function keywordPath({ additional, keys }: Facts): string {
  const path = keys?.[0]?.path ?? additional?.[0]?.path ?? '#';
  return path.replace(/\/(propertyNames|additionalProperties)$/, '');
}

function isProductive(rules: ReadonlyMap<string, GrammarNode>, node: GrammarNode): boolean {
  const pruned = prune({ root: ' ', rules: new Map([...rules, [' ', node]]) }).rules.get(' ');
  return !(pruned?.kind === 'choice' && pruned.alternatives.length === 0);
}
