/** Patterns of tokenizer.json: literal strings, or Oniguruma expressions translated by the library. */
import { parseExpression, takesLinearTime } from '../pattern/expression.js';
import type { SliceCounter, Sliced } from '@winnow/tensor';
import { LinearPattern } from '../pattern/linear-pattern.js';
import { HostPattern, type Pattern } from '../pattern/window-search.js';
import { checkGrowth } from '../text/growth.js';
import { longLength } from '../text/split.js';
import { TextBuilder } from '../text/text-builder.js';
import { asObject, jsonError } from './value.js';
import { translateOniguruma } from './library.js';

const SPACES = '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
const LEAD = '[^\\r\\n\\p{L}\\p{N}]?';
const UPPER = '[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]';
const LOWER = '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]';
const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const GPT2_CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d";

/** Expressions of published tokenizers on which the engine of the host takes linear time. */
const trusted: ReadonlySet<string> = new Set([
  // GPT-2, CLIP
  `${GPT2_CONTRACTIONS}| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+`,
  `${GPT2_CONTRACTIONS}|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+`,
  `<\\|startoftext\\|>|<\\|endoftext\\|>|${GPT2_CONTRACTIONS}|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+`,
  // Llama 3, Qwen 2, Qwen 3.5
  `${CONTRACTIONS}|${LEAD}\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${SPACES}`,
  `${CONTRACTIONS}|${LEAD}\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${SPACES}`,
  `${CONTRACTIONS}|${LEAD}[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|${SPACES}`,
  // GPT-4o and Llama 4, Mistral
  `${LEAD}${UPPER}*${LOWER}+${CONTRACTIONS}?|${LEAD}${UPPER}+${LOWER}*${CONTRACTIONS}?|` +
    `\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${SPACES}`,
  `${LEAD}${UPPER}*${LOWER}+|${LEAD}${UPPER}+${LOWER}*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${SPACES}`,
  // DeepSeek V3
  '[!"#$%&\'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|' +
    ' ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+',
  // Bloom
  ' ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+',
]);

/** The global pattern of `{ String }` or `{ Regex }`, which takes linear time. @throws FormatError */
export function readPattern(value: unknown, field: string): Pattern {
  const pattern = asObject(value, field);
  if (typeof pattern['String'] === 'string') {
    if (pattern['String'] === '') throw jsonError(`${field}.String`, 'expected a string with at least one character');
    return new HostPattern(new RegExp(pattern['String'].replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&'), 'gu'));
  }
  const source = pattern['Regex'];
  if (typeof source !== 'string') throw jsonError(field, 'expected an object with "String" or "Regex"');
  try {
    const translated = translateOniguruma(source);
    if (trusted.has(source)) return new HostPattern(translated);
    const expression = parseExpression(translated.source);
    return takesLinearTime(expression) ? new HostPattern(translated) : new LinearPattern(expression);
  } catch (cause) {
    throw jsonError(`${field}.Regex`, `cannot translate the expression: ${String(cause)}`);
  }
}

/** Calls `use` with every match in order, as `String.matchAll` finds them. */
export function* eachMatch(
  text: string,
  pattern: Pattern,
  work: SliceCounter,
  use: (start: number, end: number) => void,
): Sliced<void> {
  const search = pattern.search(text);
  yield* search.prepare(work);
  for (let next = 0; ;) {
    const match = search.next(next);
    if (match === undefined) return;
    if (work.spend(typeof match === 'number' ? longLength : 1)) yield;
    if (typeof match === 'number') {
      next = match;
      continue;
    }
    const { start, end } = match;
    use(start, end);
    next = end > start ? end : end + ((text.codePointAt(end) ?? 0) > 0xffff ? 2 : 1);
  }
}

/** The text with every match replaced, like `String.replaceAll`. */
export function* replaceMatches(text: string, pattern: Pattern, content: string, work: SliceCounter): Sliced<string> {
  const out = new TextBuilder();
  let [done, added] = [0, 0];
  yield* eachMatch(text, pattern, work, (start, end) => {
    out.add(text.slice(done, start));
    out.add(content);
    checkGrowth((added += content.length), text.length);
    done = end;
  });
  out.add(text.slice(done));
  return out.take();
}
