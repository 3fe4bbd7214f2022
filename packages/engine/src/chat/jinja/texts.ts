/** Operations on texts as in Python, where the library differs. */
import type { StepBudget } from './budget.js';
import type { Value } from './library.js';

interface Sides {
  readonly start: boolean;
  readonly end: boolean;
}

/** By the name of the method. */
export const strippedSides: ReadonlyMap<unknown, Sides> = new Map([
  ['strip', { start: true, end: true }],
  ['lstrip', { start: true, end: false }],
  ['rstrip', { start: false, end: true }],
]);

/** `text.strip(characters)` and its variants: the library strips white space whatever the argument is. */
export function strip(text: string, characters: string, sides: Sides, budget: StepBudget): string {
  const stripped = new Set(characters);
  let [start, end] = [0, text.length];
  while (sides.start && start < end) {
    const first = String.fromCodePoint(text.codePointAt(start) as number);
    if (!stripped.has(first)) break;
    start += first.length;
    budget.spend(1);
  }
  while (sides.end && start < end) {
    const last = text.slice(backward(text, end), end);
    if (!stripped.has(last)) break;
    end -= last.length;
    budget.spend(1);
  }
  return text.slice(start, end);
}

/** `text[start:stop]`, which counts code points: the library makes a list of all characters first. */
export function sliceText(text: string, start: number, stop: number): string {
  return text.slice(offsetOf(text, start), offsetOf(text, stop));
}

function offsetOf(text: string, index: number): number {
  let offset = index < 0 ? text.length : 0;
  for (let count = Math.abs(index); count > 0; count--) {
    if (index < 0 ? offset <= 0 : offset >= text.length) break;
    offset = index < 0 ? backward(text, offset) : offset + ((text.codePointAt(offset) as number) > 0xffff ? 2 : 1);
  }
  return offset;
}

/** The offset of the code point before this offset. */
function backward(text: string, offset: number): number {
  const isPair = offset > 1 && (text.codePointAt(offset - 2) as number) > 0xffff;
  return offset - (isPair ? 2 : 1);
}

/** What Python prints for a value: the library writes containers as JSON, and truth values in lower case. */
export function pythonText(value: Value): string {
  const content = value.value;
  if (content === undefined) return value.type === 'NullValue' ? 'None' : '';
  if (typeof content === 'boolean') return content ? 'True' : 'False';
  if (Array.isArray(content)) {
    const members = (content as Value[]).map(representation).join(', ');
    if (value.type !== 'TupleValue') return `[${members}]`;
    return content.length === 1 ? `(${members},)` : `(${members})`;
  }
  if (!(content instanceof Map)) return value.toString();
  const members = Array.from(content as Map<unknown, Value>, ([key, member]) => {
    const name = typeof key === 'string' ? quoted(key) : String(key);
    return `${name}: ${representation(member)}`;
  });
  return `{${members.join(', ')}}`;
}

/** As a member of a container. */
function representation(value: Value): string {
  if (typeof value.value === 'string') return quoted(value.value);
  return value.type === 'UndefinedValue' ? 'Undefined' : pythonText(value);
}

/** In single quotes, or in double quotes if the text contains single quotes only. */
function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  // eslint-disable-next-line no-control-regex
  const escaped = text.replaceAll(
    /[\\'"\n\r\t]|[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu,
    (found) => {
      if (found === '"' || found === "'") return found === quote ? `\\${found}` : found;
      return escapes.get(found) ?? escapedCode(found.codePointAt(0) as number);
    },
  );
  return `${quote}${escaped}${quote}`;
}

const escapes: ReadonlyMap<string, string> = new Map([
  ['\\', '\\\\'],
  ['\n', '\\n'],
  ['\r', '\\r'],
  ['\t', '\\t'],
]);

function escapedCode(code: number): string {
  const hex = code.toString(16);
  if (code <= 0xff) return `\\x${hex.padStart(2, '0')}`;
  return code <= 0xffff ? `\\u${hex.padStart(4, '0')}` : `\\U${hex.padStart(8, '0')}`;
}
