/** Calls in the syntax of a program: `[f(a=1)]` as in Python, and `call:f{a:1}`. */
import { maxJsonDepth } from '@winnow/tensor';
import type { LiteralShape } from '../formats/call-shapes.js';
import type { CallContext } from './call-context.js';
import { readJsonCalls } from './json-calls.js';
import { escapedJson, parsedJson, pythonWords } from './json-values.js';
import { captureUntil, peek, readSpace, readUntil, starts, startsWithOneOf, type Reading } from './text-input.js';

const maxNameLength = 256;

/** @returns false if there is no call, in which case everything may have been consumed */
export function* readLiteralCalls(context: CallContext, shape: LiteralShape, close: string): Reading<boolean> {
  const { input } = context;
  yield* readSpace(input);
  const isList = shape.isList && (yield* starts(input, '['));
  if (shape.isList && (yield* peek(input)) === '{') return yield* readJsonCalls(context, [']', close]);
  for (let count = 0; ; count++) {
    yield* readSpace(input);
    if (!(yield* readCall(context, shape))) return count > 0;
    input.keep();
    yield* readSpace(input);
    if (shape.isList && (yield* starts(input, ','))) {
      input.release();
      continue;
    }
    if (isList && (yield* starts(input, ']'))) input.keep();
    yield* readSpace(input);
    if (!(yield* starts(input, close))) input.restore();
    input.release();
    return true;
  }
}

function* readCall(context: CallContext, shape: LiteralShape): Reading<boolean> {
  const { input, writer } = context;
  const [open, close] = shape.brackets;
  if (!(yield* starts(input, shape.open))) return false;
  const name = (yield* captureUntil(input, [open], maxNameLength))?.trim();
  if (name === undefined || !/^[\w.:-]+$/.test(name)) return false;
  input.release();
  yield* starts(input, open);
  writer.startCall(name);
  const isWhole = yield* new LiteralReader(context, shape).passMembers(close, shape.assignment, 1);
  writer.endCall(isWhole);
  return true;
}

/** Passes literals on as JSON. */
class LiteralReader {
  readonly #context: CallContext;
  readonly #shape: LiteralShape;

  constructor(context: CallContext, shape: LiteralShape) {
    this.#context = context;
    this.#shape = shape;
  }

  /** An object after its opening bracket. @returns whether it has ended */
  *passMembers(close: string, assignment: string, depth: number): Reading<boolean> {
    const { input, writer } = this.#context;
    writer.callArguments('{');
    for (let count = 0; ; count++) {
      yield* readSpace(input);
      if (yield* starts(input, close)) break;
      if (count > 0 && !(yield* starts(input, ','))) return false;
      yield* readSpace(input);
      if (count > 0 && (yield* starts(input, close))) break;
      const key = yield* this.#captureKey(assignment);
      if (key === undefined) return false;
      writer.callArguments(`${count === 0 ? '' : ', '}${JSON.stringify(key)}: `);
      yield* readSpace(input);
      if (!(yield* this.#passValue(close, depth))) return false;
    }
    writer.callArguments('}');
    return true;
  }

  *#captureKey(assignment: string): Reading<string | undefined> {
    const { input } = this.#context;
    const quote = yield* startsWithOneOf(input, this.#shape.quotes);
    const key = (yield* captureUntil(input, [quote ?? assignment], maxNameLength))?.trim();
    if (quote !== undefined) {
      yield* starts(input, quote);
      yield* readSpace(input);
    }
    return (yield* starts(input, assignment)) ? key : undefined;
  }

  *#passValue(close: string, depth: number): Reading<boolean> {
    const { input, writer } = this.#context;
    if (depth > maxJsonDepth) return false;
    const quote = yield* startsWithOneOf(input, this.#shape.quotes);
    if (quote !== undefined) return yield* this.#passText(quote);
    if (yield* starts(input, '{')) return yield* this.passMembers('}', ':', depth + 1);
    if (yield* starts(input, '[')) return yield* this.#passList(depth + 1);
    const text = (yield* captureUntil(input, [',', close, ']', '}', '\n']))?.trim();
    if (text === undefined) return false;
    const json = pythonWords.get(text) ?? text;
    writer.callArguments(parsedJson(json) === undefined ? JSON.stringify(text) : json);
    return true;
  }

  *#passList(depth: number): Reading<boolean> {
    const { input, writer } = this.#context;
    writer.callArguments('[');
    for (let count = 0; ; count++) {
      yield* readSpace(input);
      if (yield* starts(input, ']')) break;
      if (count > 0 && !(yield* starts(input, ','))) return false;
      if (count > 0) writer.callArguments(', ');
      yield* readSpace(input);
      if (!(yield* this.#passValue(']', depth))) return false;
    }
    writer.callArguments(']');
    return true;
  }

  *#passText(quote: string): Reading<boolean> {
    const { input, writer } = this.#context;
    const marks = this.#shape.hasEscapes ? [quote, '\\'] : [quote];
    writer.callArguments('"');
    for (;;) {
      const mark = yield* readUntil(input, marks, (piece) => writer.callArguments(escapedJson(piece)));
      if (mark === undefined) return false;
      yield* starts(input, mark);
      if (mark === quote) break;
      if (!(yield* this.#passEscape())) return false;
    }
    writer.callArguments('"');
    return true;
  }

  /** An escape after its backslash, as Python and JSON have them. */
  *#passEscape(): Reading<boolean> {
    const { input, writer } = this.#context;
    const kind = yield* peek(input);
    if (kind === '') return false;
    input.take(1);
    const length = { x: 2, u: 4, U: 8 }[kind];
    if (length === undefined) {
      writer.callArguments(escapedJson(escapes.get(kind) ?? `\\${kind}`));
      return true;
    }
    while (input.rest.length < length && !input.hasEnded) yield;
    const code = Number.parseInt(input.take(length), 16);
    if (!(code <= 0x10ffff)) return false;
    writer.callArguments(
      length === 4 ? `\\u${code.toString(16).padStart(4, '0')}` : escapedJson(String.fromCodePoint(code)),
    );
    return true;
  }
}

const escapes: ReadonlyMap<string, string> = new Map([
  ['n', '\n'],
  ['t', '\t'],
  ['r', '\r'],
  ['b', '\b'],
  ['f', '\f'],
  ['\\', '\\'],
  ['/', '/'],
  ['"', '"'],
  ["'", "'"],
  ['\n', ''],
]);
