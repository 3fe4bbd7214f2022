/** Grammars of calls, as the model itself writes them. */
import {
  choice,
  literal,
  optional,
  repeat,
  ruleReference,
  sequence,
  textWithout,
  type GrammarNode,
  type JsonSchema,
  type SchemaWriter,
} from '@winnow/grammar';
import { FormatError, type Sliced } from '@winnow/tensor';
import type { ToolFormatRow } from './tool-format.js';

/** A tool whose arguments are an object. */
export interface CallableTool {
  readonly name: string;
  readonly parameters: JsonSchema;
}

/** Where the rules of a grammar are collected. */
export interface GrammarTarget {
  readonly rules: Map<string, GrammarNode>;
  readonly writer: SchemaWriter;
}

/** A call of the tool, without separators. @throws {FormatError} for parameters that cannot be enforced */
export function* callNode(format: ToolFormatRow, tool: CallableTool, target: GrammarTarget): Sliced<GrammarNode> {
  const values = yield* argumentsNode(format, tool, target);
  return writtenNode(format.written.call, {
    name: literal(tool.name),
    arguments: values,
    index: repeat(digit, 1, 3),
    id: repeat(alphanumeric, 9, 9),
    ...spacesOf(format, target),
  });
}

/** The calls of an answer, of which each is one of the alternatives. */
export function callsNode(
  format: ToolFormatRow,
  alternatives: readonly GrammarNode[],
  target: GrammarTarget,
  isParallel: boolean,
): GrammarNode {
  const { before, between, after, isSingle } = format.written;
  const spaces = spacesOf(format, target);
  target.rules.set('call', { kind: 'choice', alternatives });
  const call = ruleReference('call');
  const isOne = !isParallel || isSingle === true;
  const more = isOne ? [] : [repeat(sequence(writtenNode(between, spaces), call), 0)];
  return sequence(writtenNode(before, spaces), call, ...more, writtenNode(after, spaces));
}

/** Free text before calls, in which no call begins; and what must precede calls that follow no text. */
export function freeText(
  format: ToolFormatRow,
  toolNames: readonly string[],
  rules: Map<string, GrammarNode>,
): GrammarNode {
  const { opens, sectionOpen, startOpens = [] } = format;
  const marks = [...opens, ...(sectionOpen === undefined ? [] : [sectionOpen])].flatMap((open) =>
    open.includes('{name}') ? toolNames.map((name) => open.replace('{name}', name)) : [open],
  );
  const starts = startOpens.map((open) => `^\\s*${escapedPattern(open)}`);
  return textWithout(rules, 'text', [...marks.map(escapedPattern), ...starts].join('|'));
}

/** An ECMAScript pattern of the text. */
export function escapedPattern(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|]/g, '\\$&');
}

const digit: GrammarNode = { kind: 'class', ranges: [[48, 57]] };
const alphanumeric: GrammarNode = {
  kind: 'class',
  ranges: [
    [48, 57],
    [65, 90],
    [97, 122],
  ],
};

/** White space in JSON may vary. */
function spacesOf({ shape }: ToolFormatRow, { writer }: GrammarTarget): Readonly<Record<string, GrammarNode>> {
  return shape.kind === 'json' ? { ' ': writer.space, '\n': optional(literal('\n')) } : {};
}

/** The text as nodes, with the given nodes in place of `{name}` and of white space. */
function writtenNode(text: string, nodes: Readonly<Record<string, GrammarNode>>): GrammarNode {
  const pieces = text.split(/(\{\w+\}|[ \n])/).filter((piece) => piece !== '');
  return sequence(...pieces.map((piece) => nodes[piece.replace(/^\{(.*)\}$/, '$1')] ?? literal(piece)));
}

function* argumentsNode(
  { shape }: ToolFormatRow,
  { parameters }: CallableTool,
  target: GrammarTarget,
): Sliced<GrammarNode> {
  const isJson = shape.kind !== 'tagged' && shape.kind !== 'literal';
  if (isJson) return yield* target.writer.writeSliced(parameters);
  const { properties = {}, required = [] } = separateArguments(parameters);
  const members: { readonly isRequired: boolean; readonly node: GrammarNode }[] = [];
  for (const [key, property] of Object.entries(properties)) {
    const schema = withDefinitions(property, parameters);
    const node =
      shape.kind === 'tagged'
        ? yield* taggedNode(shape.argument, key, schema, target)
        : yield* assignedNode(shape.assignment, shape.quotes[0] as string, key, schema, target);
    members.push({ isRequired: required.includes(key), node });
  }
  if (shape.kind === 'tagged') {
    return sequence(...members.map(({ isRequired, node }) => (isRequired ? node : optional(node))));
  }
  const [open, close] = shape.brackets;
  const list = listNode(members, shape.assignment === '=' ? ', ' : ',');
  return open === '(' ? list : sequence(literal(open), list, literal(close));
}

interface ObjectSchema {
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[];
}

/** Keywords that, like `properties`, decide which members an object has. */
const memberKeywords = [
  ...['$ref', 'allOf', 'anyOf', 'oneOf', 'not', 'if', 'const', 'enum', 'minProperties', 'maxProperties'],
  ...['patternProperties', 'propertyNames', 'dependentRequired', 'dependentSchemas', 'dependencies'],
];

/**
 * The arguments, which the model writes one by one. @throws {FormatError} when anything but `properties` decides which
 * arguments exist
 */
function separateArguments(parameters: JsonSchema): ObjectSchema {
  const schema = parameters as ObjectSchema & Readonly<Record<string, unknown>>;
  const found = memberKeywords.find((keyword) => Object.hasOwn(schema, keyword) && !isVoid(keyword, schema[keyword]));
  if (found !== undefined) throw notSeparate(found, `"${found}"`);
  const missing = schema.required?.find((key) => !Object.hasOwn(schema.properties ?? {}, key));
  if (missing !== undefined) throw notSeparate('required', `${JSON.stringify(missing)}, which is not in them`);
  return schema;
}

function notSeparate(keyword: string, found: string): FormatError {
  const message = `this model writes arguments one by one: expected all of them in "properties", got ${found}`;
  return new FormatError({ source: 'JSON schema', field: `#/${keyword}`, message });
}

/** Whether the keyword says nothing about members: `not: false`, or alternatives that only have a type. */
function isVoid(keyword: string, value: unknown): boolean {
  if (keyword === 'not') return value === false;
  const isType = (each: unknown): boolean => typeof each === 'object' && Object.keys(each ?? {}).join() === 'type';
  return keyword === 'allOf' && Array.isArray(value) && value.every(isType);
}

function withDefinitions(schema: JsonSchema, root: JsonSchema): JsonSchema {
  if (typeof schema !== 'object' || typeof root !== 'object') return schema;
  const { $defs, definitions } = root;
  return {
    ...schema,
    ...($defs === undefined ? {} : { $defs }),
    ...(definitions === undefined ? {} : { definitions }),
  };
}

/** Members, each of which may be missing, with separators between those that are present. */
function listNode(
  members: readonly { readonly isRequired: boolean; readonly node: GrammarNode }[],
  separator: string,
): GrammarNode {
  const [first, ...others] = [...members].sort((a, b) => Number(b.isRequired) - Number(a.isRequired));
  if (first === undefined) return sequence();
  const following = others.map(({ isRequired, node }) => {
    const next = sequence(literal(separator), node);
    return isRequired ? next : optional(next);
  });
  const whole = sequence(first.node, ...following);
  return first.isRequired ? whole : choice(whole, listNode(others, separator));
}

function* taggedNode(
  { close, written }: { readonly close: string; readonly written: string },
  key: string,
  schema: JsonSchema,
  target: GrammarTarget,
): Sliced<GrammarNode> {
  const texts = textsOf(schema);
  const value = texts === undefined ? yield* target.writer.writeSliced(schema) : textNode(texts, close, target);
  const isText = literal(String(texts !== undefined));
  return writtenNode(written, { key: literal(key), value, isText });
}

function* assignedNode(
  assignment: string,
  quote: string,
  key: string,
  schema: JsonSchema,
  target: GrammarTarget,
): Sliced<GrammarNode> {
  const texts = textsOf(schema);
  const isQuoted = texts !== undefined && quote !== '"';
  const value = isQuoted
    ? sequence(literal(quote), textNode(texts, quote, target), literal(quote))
    : yield* target.writer.writeSliced(schema);
  return sequence(literal(`${key}${assignment}`), value);
}

/**
 * The strings that a schema allows, or an empty list if it allows any string; undefined for a schema of other types.
 */
function textsOf(schema: JsonSchema): readonly string[] | undefined {
  if (typeof schema !== 'object') return undefined;
  const { type, enum: values, const: value } = schema as Readonly<Record<string, unknown>>;
  const allowed = value === undefined ? values : [value];
  if (Array.isArray(allowed)) {
    return allowed.every((text) => typeof text === 'string') ? (allowed as readonly string[]) : undefined;
  }
  return type === 'string' ? [] : undefined;
}

function textNode(texts: readonly string[], close: string, { rules }: GrammarTarget): GrammarNode {
  if (texts.length > 0) return choice(...texts.map((text) => literal(text)));
  const name = 'value';
  if (!rules.has(name)) rules.set(name, textWithout(rules, 'value-text', escapedPattern(close)));
  return ruleReference(name);
}
