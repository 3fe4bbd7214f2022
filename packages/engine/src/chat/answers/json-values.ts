/** Reads JSON values from text that arrives in pieces. */
import { maxJsonDepth } from '@winnow/tensor';
import { peek, type Reading, type TextInput } from './text-input.js';

/**
 * Passes the text of a value on as it arrives. What is inside brackets and quotes is not checked.
 * @returns whether the value has ended, and is not nested too deeply
 */
export function* passJson(input: TextInput, write: (text: string) => void): Reading<boolean> {
  const first = yield* peek(input);
  const isScalar = !'{["'.includes(first);
  let depth = 0;
  let isInString = false;
  let isEscaped = false;
  for (;;) {
    const { rest } = input;
    for (let at = 0; at < rest.length; at++) {
      const character = rest.charAt(at);
      if (isScalar) {
        if (!/[\s,}\]]/.test(character)) continue;
        write(input.take(at));
        return at > 0 || first !== '';
      }
      if (isEscaped) isEscaped = false;
      else if (isInString) {
        if (character === '\\') isEscaped = true;
        if (character !== '"') continue;
        isInString = false;
      } else if (character === '"') isInString = true;
      else if (character === '{' || character === '[') depth++;
      else if (character === '}' || character === ']') depth--;
      else continue;
      if (depth > maxJsonDepth) {
        write(input.take(at));
        return false;
      }
      if (depth > 0 || isInString || isEscaped) continue;
      write(input.take(at + 1));
      return true;
    }
    write(input.take(rest.length));
    if (input.hasEnded) return isScalar && first !== '';
    yield;
  }
}

/** The text of a value; undefined if it does not end. */
export function* captureJson(input: TextInput): Reading<string | undefined> {
  let text = '';
  const isWhole = yield* passJson(input, (piece) => {
    text += piece;
  });
  return isWhole ? text : undefined;
}

/** A string value; undefined for any other value. */
export function* captureString(input: TextInput): Reading<string | undefined> {
  if ((yield* peek(input)) !== '"') return undefined;
  const text = yield* captureJson(input);
  const value = text === undefined ? undefined : parsedJson(text);
  return typeof value === 'string' ? value : undefined;
}

/** Undefined for text that is not JSON. */
export function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The JSON of Python literals, which some models write instead. */
export const pythonWords: ReadonlyMap<string, string> = new Map([
  ['True', 'true'],
  ['False', 'false'],
  ['None', 'null'],
]);

/** Escapes a piece of a string for use between quotes. */
export function escapedJson(piece: string): string {
  return JSON.stringify(piece).slice(1, -1);
}
