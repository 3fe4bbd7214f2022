/** What the parsers of calls share. */
import type { ChatTool } from '../template.js';
import type { ToolFormatRow } from '../formats/tool-format.js';
import type { AnswerWriter } from './answer-writer.js';
import type { TextInput } from './text-input.js';

export interface CallContext {
  readonly input: TextInput;
  readonly writer: AnswerWriter;
  readonly format: ToolFormatRow;
  readonly tools: ReadonlyMap<string, ChatTool>;
}

/** Types of JSON that an argument may have; empty if the tool does not say. */
export function argumentTypes({ tools }: CallContext, toolName: string, key: string): ReadonlySet<string> {
  const { parameters } = tools.get(toolName) ?? {};
  const types = new Set<string>();
  if (typeof parameters !== 'object') return types;
  const { properties } = parameters as { readonly properties?: Readonly<Record<string, unknown>> };
  collectTypes(properties?.[key], parameters, types, maxReferences);
  return types;
}

/** Schemas that refer to more than this many others in a row count as unknown. */
const maxReferences = 8;

function collectTypes(schema: unknown, root: unknown, types: Set<string>, left: number): void {
  if (typeof schema !== 'object' || schema === null || left === 0) return;
  const { type, anyOf, oneOf, enum: values, const: value, $ref } = schema as Readonly<Record<string, unknown>>;
  for (const name of Array.isArray(type) ? (type as unknown[]) : [type]) if (typeof name === 'string') types.add(name);
  for (const alternatives of [anyOf, oneOf]) {
    if (!Array.isArray(alternatives)) continue;
    for (const alternative of alternatives) collectTypes(alternative, root, types, left - 1);
  }
  if (type === undefined) {
    for (const member of Array.isArray(values) ? (values as unknown[]) : value === undefined ? [] : [value]) {
      types.add(member === null ? 'null' : Array.isArray(member) ? 'array' : typeof member);
    }
  }
  if (typeof $ref === 'string') collectTypes(referenced(root, $ref), root, types, left - 1);
}

function referenced(root: unknown, reference: string): unknown {
  if (!reference.startsWith('#/')) return undefined;
  let found = root;
  for (const name of reference.slice(2).split('/')) {
    if (typeof found !== 'object' || found === null) return undefined;
    found = (found as Readonly<Record<string, unknown>>)[name.replaceAll('~1', '/').replaceAll('~0', '~')];
  }
  return found;
}
