/** Calls whose arguments stand between tags, one by one. */
import type { TaggedShape } from '../formats/call-shapes.js';
import { argumentTypes, type CallContext } from './call-context.js';
import { readJsonCalls } from './json-calls.js';
import { escapedJson, parsedJson, pythonWords } from './json-values.js';
import { captureUntil, peek, readSpace, readUntil, starts, startsWithOneOf, type Reading } from './text-input.js';

/** Values of the attribute by which a model says whether an argument is a string. */
const textAttribute = ' string="true"';
const jsonAttribute = ' string="false"';

/**
 * @param close ends the section
 * @returns false if there is no call, in which case everything may have been consumed
 */
export function* readTaggedCalls(context: CallContext, shape: TaggedShape, close: string): Reading<boolean> {
  const { input } = context;
  for (let count = 0; ; count++) {
    if (count > 0) input.keep();
    yield* readSpace(input);
    if (count === 0 && (yield* peek(input)) === '{') return yield* readJsonCalls(context, [close]);
    const isNext = (shape.open !== '' || count === 0) && (yield* starts(input, shape.open));
    if (isNext && (yield* readCall(context, shape))) continue;
    if (count > 0) input.restore();
    if (count > 0 && close !== shape.close) {
      input.keep();
      yield* readSpace(input);
      if (yield* starts(input, close)) input.release();
      else input.restore();
    }
    return count > 0;
  }
}

function* readCall(context: CallContext, shape: TaggedShape): Reading<boolean> {
  const { input, writer } = context;
  const name = (yield* captureUntil(input, shape.nameEnds, maxNameLength))?.trim();
  if (name === undefined || name === '' || /\s/.test(name)) return false;
  if (shape.keepsNameEnd !== true) yield* startsWithOneOf(input, shape.nameEnds);
  input.release();
  writer.startCall(name);
  for (let count = 0; ; count++) {
    yield* readSpace(input);
    if (yield* starts(input, shape.argument.open)) {
      if (yield* readArgument(context, shape, name, count === 0)) continue;
      writer.endCall(false);
      return true;
    }
    const isWhole = yield* starts(input, shape.close);
    if (isWhole) writer.callArguments(count === 0 ? '{}' : '}');
    writer.endCall(isWhole);
    return true;
  }
}

const maxNameLength = 256;

function* readArgument(context: CallContext, shape: TaggedShape, tool: string, isFirst: boolean): Reading<boolean> {
  const { input, writer } = context;
  const { keyEnds, valueOpen, close } = shape.argument;
  const key = (yield* captureUntil(input, keyEnds, maxNameLength))?.trim();
  if (key === undefined) return false;
  yield* startsWithOneOf(input, keyEnds);
  const attribute = yield* startsWithOneOf(input, [textAttribute, jsonAttribute]);
  if (attribute !== undefined) yield* starts(input, '>');
  if (valueOpen !== undefined) {
    yield* readSpace(input);
    if (!(yield* starts(input, valueOpen))) return false;
  }
  writer.callArguments(`${isFirst ? '{' : ', '}${JSON.stringify(key)}: `);
  yield* starts(input, '\n');
  const types = argumentTypes(context, tool, key);
  const isText = attribute === undefined ? types.size === 1 && types.has('string') : attribute === textAttribute;
  if (isText) return yield* passText(context, close);
  const text = yield* captureUntil(input, [close]);
  if (text === undefined) return false;
  yield* starts(input, close);
  writer.callArguments(jsonOf(text, types));
  return true;
}

/** Passes on a string without the line breaks around it. */
function* passText({ input, writer }: CallContext, close: string): Reading<boolean> {
  writer.callArguments('"');
  let held = '';
  const found = yield* readUntil(input, [close], (piece) => {
    const text = held + piece;
    held = text.endsWith('\n') ? '\n' : '';
    writer.callArguments(escapedJson(text.slice(0, text.length - held.length)));
  });
  if (found === undefined) return false;
  yield* starts(input, close);
  writer.callArguments('"');
  return true;
}

/** The value as JSON of an expected type, or as a string. */
function jsonOf(text: string, types: ReadonlySet<string>): string {
  const trimmed = text.trim();
  const lowered = pythonWords.get(trimmed) ?? trimmed;
  const value = parsedJson(lowered);
  const type = value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value;
  const isWanted = types.size === 0 || types.has(type) || (type === 'number' && types.has('integer'));
  const isOnlyChoice = types.size > 0 && !types.has('string');
  if (value !== undefined && ((isWanted && type !== 'string') || isOnlyChoice)) return lowered;
  return JSON.stringify(text.endsWith('\n') ? text.slice(0, -1) : text);
}
