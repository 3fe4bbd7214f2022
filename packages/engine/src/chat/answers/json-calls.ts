/** Calls that are JSON objects with a name and arguments. */
import { isRecord, jsonDepth, maxJsonDepth } from '@winnow/tensor';
import type { CallContext } from './call-context.js';
import { captureJson, captureString, parsedJson, passJson } from './json-values.js';
import { peek, readSpace, starts, startsWithOneOf, type Reading } from './text-input.js';

const nameKeys: ReadonlySet<string> = new Set(['name', 'tool_name']);
const argumentKeys: ReadonlySet<string> = new Set(['arguments', 'parameters', 'args']);
const idKeys: ReadonlySet<string> = new Set(['id', 'tool_call_id']);

/**
 * One call, several in a row, or a list of them.
 * @param closes texts that end the section; it may also end with the answer
 * @returns false if there is no call, in which case everything may have been consumed
 */
export function* readJsonCalls(context: CallContext, closes: readonly string[]): Reading<boolean> {
  const { input } = context;
  yield* readSpace(input);
  if (yield* starts(input, '```json')) yield* readSpace(input);
  const isList = yield* starts(input, '[');
  for (let count = 0; ; count++) {
    if (count > 0) input.keep();
    yield* readSpace(input);
    if ((yield* startsWithOneOf(input, closes)) !== undefined) return endOfCalls(context, count > 0);
    if (isList && (yield* starts(input, ']'))) {
      input.keep();
      yield* readSpace(input);
      if ((yield* startsWithOneOf(input, closes)) === undefined) input.restore();
      return endOfCalls(context, count > 0);
    }
    if (count > 0 && (yield* startsWithOneOf(input, [',', ';'])) !== undefined) yield* readSpace(input);
    if (yield* readCallObject(context)) continue;
    if (count > 0) input.restore();
    return count > 0;
  }
}

function endOfCalls({ input }: CallContext, hasCalls: boolean): boolean {
  if (hasCalls) input.release();
  return hasCalls;
}

/** The members of a call that have been read. */
interface Found {
  name: string | undefined;
  id: string | undefined;
  /** The arguments, as text, if they came before the name. */
  values: string | undefined;
  isStarted: boolean;
  /** The call has arguments more than once, so it is unclear which ones are meant. */
  isRepeated: boolean;
  /** The text ends after a comma. */
  endsInComma: boolean;
}

function* readCallObject(context: CallContext): Reading<boolean> {
  const { input, writer } = context;
  const found: Found = {
    ...{ name: undefined, id: undefined, values: undefined },
    ...{ isStarted: false, isRepeated: false, endsInComma: false },
  };
  if (!(yield* starts(input, '{'))) return false;
  const isWhole = yield* readMembers(context, found);
  if (!found.isStarted) {
    if (found.name === undefined || (!isWhole && !isCutAfterName(context, found))) return false;
    if (context.format.isBare === true && found.values === undefined) return false;
    start(context, found);
    writer.callArguments(argumentsText(found.values ?? (isWhole ? '{}' : '')));
  }
  writer.endCall(isWhole && !found.isRepeated);
  return true;
}

/** Whether the answer ends where the arguments of a call would follow. */
function isCutAfterName({ input, format }: CallContext, { values, endsInComma }: Found): boolean {
  return input.isDone && format.isBare !== true && (values !== undefined || endsInComma);
}

function start({ input, writer }: CallContext, found: Found): void {
  found.isStarted = true;
  input.release();
  writer.startCall(found.name as string, found.id);
}

function* readMembers(context: CallContext, found: Found): Reading<boolean> {
  const { input } = context;
  for (let count = 0; ; count++) {
    yield* readSpace(input);
    if (yield* starts(input, '}')) return true;
    if (count > 0 && !(yield* starts(input, ','))) return false;
    yield* readSpace(input);
    found.endsInComma = count > 0 && input.isDone;
    const key = yield* captureString(input);
    if (key === undefined) return false;
    yield* readSpace(input);
    if (!(yield* starts(input, ':'))) return false;
    yield* readSpace(input);
    if (!(yield* readMember(context, key, found))) return false;
  }
}

function* readMember(context: CallContext, key: string, found: Found): Reading<boolean> {
  const { input, format } = context;
  if (nameKeys.has(key)) return (found.name = yield* captureString(input)) !== undefined;
  if (key === 'function' && (yield* peek(input)) === '{') {
    yield* starts(input, '{');
    return yield* readMembers(context, found);
  }
  if (!argumentKeys.has(key)) {
    const value = yield* captureJson(input);
    const parsed = value === undefined ? undefined : parsedJson(value);
    if (key === 'function' && typeof parsed === 'string') found.name = parsed;
    if (idKeys.has(key) && (typeof parsed === 'string' || typeof parsed === 'number')) found.id = String(parsed);
    return value !== undefined;
  }
  if (found.isStarted || found.values !== undefined) {
    found.isRepeated = true;
    return (yield* captureJson(input)) !== undefined;
  }
  if (found.name === undefined || format.hasIdAfterArguments === true) {
    found.values = yield* captureJson(input);
    return found.values !== undefined;
  }
  if (format.isBare === true && (yield* peek(input)) !== '{') return false;
  start(context, found);
  return yield* passArguments(context);
}

/** Passes on the arguments of the call that has started: an object, or a string that contains one. */
export function* passArguments({ input, writer }: CallContext): Reading<boolean> {
  const first = yield* peek(input);
  if (first === '{') return yield* passJson(input, (text) => writer.callArguments(text));
  const text = yield* captureJson(input);
  if (text !== undefined) writer.callArguments(argumentsText(text));
  return text !== undefined;
}

/** Some models write the object as a string, or null for no arguments. */
function argumentsText(text: string): string {
  if (jsonDepth(text) > maxJsonDepth) return text;
  const value = parsedJson(text);
  if (value === null || value === '') return '{}';
  return typeof value === 'string' && isRecord(parsedJson(value)) ? value : text;
}
