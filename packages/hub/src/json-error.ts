/**
 * Finds the first syntax error in a JSON text: `JSON.parse` reports its position only sometimes, and differently in
 * every engine. Scans character by character, because regular expressions overflow the stack on strings of many
 * megabytes.
 */

type State = 'value' | 'value-or-end' | 'key' | 'key-or-end' | 'colon' | 'comma-or-end' | 'done';

const scalar = /-?(?:0|[1-9]\d{0,400})(?:\.\d{1,400})?(?:[eE][+-]?\d{1,10})?|true|false|null/y;

/** Index of the first invalid character, or the length of the text when it is incomplete. */
export function findJsonError(text: string): number {
  const closers: string[] = [];
  let state: State = 'value';
  let at = 0;
  for (;;) {
    at = skipSpace(text, at);
    const char = text[at];
    if (char === undefined || state === 'done') return at;
    const isValue = state === 'value' || state === 'value-or-end';
    let ends = false; // a value ends here
    if (isValue && char === '{') {
      closers.push('}');
      state = 'key-or-end';
      at++;
    } else if (isValue && char === '[') {
      closers.push(']');
      state = 'value-or-end';
      at++;
    } else if (
      (state === 'value-or-end' || state === 'key-or-end' || state === 'comma-or-end') &&
      char === closers.at(-1)
    ) {
      closers.pop();
      ends = true;
      at++;
    } else if ((isValue || state === 'key' || state === 'key-or-end') && char === '"') {
      const end = skipString(text, at);
      if (end < 0) return ~end;
      at = end;
      if (isValue) ends = true;
      else state = 'colon';
    } else if (isValue) {
      scalar.lastIndex = at;
      if (!scalar.test(text)) return at;
      at = scalar.lastIndex;
      ends = true;
    } else if (state === 'colon' && char === ':') {
      state = 'value';
      at++;
    } else if (state === 'comma-or-end' && char === ',') {
      state = closers.at(-1) === '}' ? 'key' : 'value';
      at++;
    } else return at;
    if (ends) state = closers.length === 0 ? 'done' : 'comma-or-end';
  }
}

/** The text with `Infinity` outside of strings replaced by a number of the same length that overflows to it. */
export function relaxInfinity(text: string): string {
  const word = 'Infinity';
  let result = '';
  let copied = 0;
  let at = 0;
  while (at < text.length) {
    const char = text[at];
    if (char === '"') {
      const end = skipString(text, at);
      if (end < 0) break;
      at = end;
    } else if (char === 'I' && text.startsWith(word, at)) {
      result += text.slice(copied, at) + '1e999   ';
      at += word.length;
      copied = at;
    } else at++;
  }
  return copied === 0 ? text : result + text.slice(copied);
}

function skipSpace(text: string, from: number): number {
  let at = from;
  while (at < text.length) {
    const code = text.charCodeAt(at);
    if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) break;
    at++;
  }
  return at;
}

/** Index after the string that starts at `from`, or the bitwise complement of the index of the first error. */
function skipString(text: string, from: number): number {
  for (let at = from + 1; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === 0x22) return at + 1;
    if (code < 0x20) return ~at;
    if (code !== 0x5c) continue;
    const escape = text[at + 1] ?? '';
    if (escape === 'u') {
      if (!/^[0-9a-fA-F]{4}$/.test(text.slice(at + 2, at + 6))) return ~at;
      at += 5;
    } else if (escape !== '' && '"\\/bfnrt'.includes(escape)) at++;
    else return ~at;
  }
  return ~text.length;
}
