/** The grammar of an answer with calls, reasoning or a schema. */
import {
  choice,
  createSchemaWriter,
  literal,
  optional,
  sequence,
  textWithout,
  type Grammar,
  type GrammarNode,
  type JsonSchema,
  type Origin,
  type TimeLimit,
} from '@winnow/grammar';
import { CapacityError, FormatError, type Sliced } from '@winnow/tensor';
import type { AnswerFormat } from './answers/answer-reader.js';
import { callNode, callsNode, escapedPattern, freeText, type GrammarTarget } from './formats/call-grammar.js';
import type { ToolFormatRow } from './formats/tool-format.js';
import type { ChatTool } from './template.js';

/** What an answer may be. */
export interface AnswerRules {
  readonly format: AnswerFormat;
  /** Tools that may be called. */
  readonly tools: readonly ChatTool[];
  /** Every answer has a call. */
  readonly isRequired: boolean;
  readonly isParallel: boolean;
  /** Schema of answers without calls. */
  readonly jsonSchema: JsonSchema | undefined;
  /** The answer may not begin with reasoning, since the prompt has already ended it. */
  readonly hasReasoned: boolean;
}

/**
 * @throws {FormatError} for schemas that cannot be enforced; `source` names the tool
 * @throws {CapacityError} for those that are too large or take too long, likewise
 */
export function* answerGrammar(answer: AnswerRules, deadline: TimeLimit): Sliced<Grammar> {
  const rules = new Map<string, GrammarNode>([['root', { kind: 'choice', alternatives: [] }]]);
  let current: string | undefined; // the tool whose schema is converted now
  const check: TimeLimit['check'] = (refusal) => deadline.check((...times) => capacityOf(current, refusal(...times)));
  const writer = createSchemaWriter(rules, { deadline: { check } });
  const toolOf = new Map<string, string>();
  const nodes: GrammarNode[] = [];
  for (const tool of answer.tools) {
    current = tool.name;
    nodes.push(yield* toolNode(answer.format.tools, tool, { rules, writer }));
    for (const rule of writer.places.keys()) if (!toolOf.has(rule)) toolOf.set(rule, tool.name);
  }
  current = undefined;
  const text = answer.jsonSchema === undefined ? undefined : yield* writer.writeSliced(answer.jsonSchema);
  rules.set('root', afterReasoning(answer, answerNode(answer, nodes, text, { rules, writer }), rules));
  return { root: 'root', rules, originOf };

  function originOf(rule: string): Origin {
    const field = writer.places.get(rule) ?? '#';
    const tool = toolOf.get(rule);
    if (tool !== undefined) return { source: sourceOf(tool), field };
    return writer.places.has(rule) ? { source: 'JSON schema', field } : { source: 'parameters of tools', field };
  }
}

/** What errors name for a schema. */
function sourceOf(tool: string): string {
  return `parameters of tool ${tool}`;
}

function* toolNode(format: ToolFormatRow, { name, parameters }: ChatTool, target: GrammarTarget): Sliced<GrammarNode> {
  try {
    return yield* callNode(format, { name, parameters: typedAsObject(parameters) }, target);
  } catch (error) {
    throw ofTool(name, error);
  }
}

/** Calls, or an answer without them: that of a schema, or free text. */
function answerNode(
  { format, tools, isRequired, isParallel }: AnswerRules,
  nodes: readonly GrammarNode[],
  text: GrammarNode | undefined,
  target: GrammarTarget,
): GrammarNode {
  const row = format.tools;
  const answer = text === undefined ? undefined : sequence(...headOf(format), text);
  if (nodes.length === 0) return answer ?? textWithout(target.rules, 'text', '[^\\s\\S]');
  const calls = callsNode(row, nodes, target, isParallel);
  const start = row.written.start === undefined ? [] : [literal(row.written.start)];
  if (isRequired) return sequence(...start, calls);
  if (answer !== undefined) return choice(answer, sequence(...start, calls));
  const free = freeText(
    row,
    tools.map(({ name }) => name),
    target.rules,
  );
  if (row.shape.kind === 'recipients') {
    return choice(calls, sequence(...headOf(format), free, optional(sequence(literal('>>>'), calls))));
  }
  // a call without marks of its own, only braces, is the whole answer
  return row.isBare === true ? choice(free, calls) : sequence(free, optional(calls));
}

/** What stands before the text of an answer without calls. */
function headOf({ tools }: AnswerFormat): readonly GrammarNode[] {
  if (tools.shape.kind === 'harmony') return [literal('<|channel|>final<|message|>')];
  return tools.shape.kind === 'recipients' ? [literal('all\n')] : [];
}

/** Reasoning is unconstrained and ends before the answer begins. */
function afterReasoning(
  { format, hasReasoned }: AnswerRules,
  answer: GrammarNode,
  rules: Map<string, GrammarNode>,
): GrammarNode {
  const block = reasoningBlock(format, rules);
  if (block === undefined || hasReasoned) return answer;
  return sequence(format.startsInReasoning ? block : optional(block), answer);
}

/** From the opening mark, if the prompt does not have it, to white space after the closing one. */
function reasoningBlock(
  { reasoning, tools, startsInReasoning }: AnswerFormat,
  rules: Map<string, GrammarNode>,
): GrammarNode | undefined {
  if (tools.shape.kind === 'harmony') {
    const text = textWithout(rules, 'reasoning', escapedPattern('<|end|>'));
    return sequence(literal('<|channel|>analysis<|message|>'), text, literal('<|end|><|start|>assistant'));
  }
  if (reasoning === undefined) return undefined;
  const { open, label = '', close } = reasoning;
  const text = textWithout(rules, 'reasoning', escapedPattern(close));
  const begin = startsInReasoning ? [] : [literal(`${open}${label}`)];
  return sequence(...begin, text, literal(close), { kind: 'repeat', item: lineBreak, min: 0, max: 2 });
}

const lineBreak: GrammarNode = literal('\n');

/**
 * Arguments are an object, whether the schema says so or not.
 * @throws {FormatError} when it says that they are something else
 */
function typedAsObject(parameters: JsonSchema = { additionalProperties: false }): JsonSchema {
  if (typeof parameters === 'boolean') return { type: 'object', not: !parameters };
  const { $ref, ...rest } = parameters;
  const { type = 'object', allOf = [] } = rest;
  if (type === 'object' || (Array.isArray(type) && type.includes('object'))) {
    const typed = { ...rest, type: 'object', nullable: false };
    const others: JsonSchema[] = Array.isArray(type) ? [{ type }] : [];
    if ($ref !== undefined) others.push({ $ref }); // old drafts ignore a type next to a reference
    return others.length === 0 || !Array.isArray(allOf)
      ? typed
      : { ...typed, allOf: [...(allOf as unknown[]), ...others] };
  }
  const message = `expected object, got ${JSON.stringify(type)}`;
  throw new FormatError({ source: 'JSON schema', field: '#/type', message });
}

/** The same error of a schema, whose source names the tool. */
function ofTool(name: string, error: unknown): unknown {
  const source = sourceOf(name);
  if (FormatError.isInstance(error)) {
    return new FormatError({ source, field: error.field, message: error.message }, { cause: error });
  }
  return CapacityError.isInstance(error) ? capacityOf(name, error) : error;
}

function capacityOf(tool: string | undefined, error: CapacityError): CapacityError {
  if (tool === undefined) return error;
  const { resource, needed, available, unit, field = '#' } = error;
  return new CapacityError({ source: sourceOf(tool), field, resource, needed, available, unit });
}
