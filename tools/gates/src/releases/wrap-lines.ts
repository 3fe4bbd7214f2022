/** Wraps long lines of declarations: members of a list or of a union get lines of their own. */
const maxLength = 120;

const isOpening = (text: string, at: number): boolean => '([{<'.includes(text[at] as string);
const isClosing = (text: string, at: number): boolean =>
  ')]}'.includes(text[at] as string) || (text[at] === '>' && text[at - 1] !== '=');

/** Positions of `separator` outside all brackets, between `begin` and `end`. */
function separators(text: string, separator: string, begin: number, end: number): number[] {
  const found: number[] = [];
  let depth = 0;
  for (let at = begin; at < end; at++) {
    if (isOpening(text, at)) depth++;
    else if (isClosing(text, at)) depth--;
    else if (depth === 0 && text.startsWith(separator, at)) found.push(at);
  }
  return found;
}

function pieces(text: string, separator: string, begin: number, end: number): string[] {
  const cuts = separators(text, separator, begin, end);
  return [...cuts, end].map((cut, i) => text.slice(i === 0 ? begin : (cuts[i - 1] as number) + separator.length, cut));
}

/** The first list in parentheses or square brackets that is not empty and ends on this line, outside all others. */
function firstList(line: string): { readonly begin: number; readonly end: number } | undefined {
  let depth = 0;
  let begin = -1;
  for (let at = 0; at < line.length; at++) {
    if (isOpening(line, at)) {
      if (depth === 0 && begin < 0 && '(['.includes(line[at] as string) && !isClosing(line, at + 1)) begin = at + 1;
      depth++;
    } else if (isClosing(line, at)) {
      depth--;
      if (depth === 0 && begin >= 0) return { begin, end: at };
    }
  }
  return undefined;
}

/** The lines of one line of code that may be too long. */
export function wrapLine(line: string): string[] {
  if (line.length <= maxLength) return [line];
  const indent = /^ */.exec(line)?.[0] ?? '';
  const list = firstList(line);
  if (list !== undefined) {
    const items = pieces(line, ', ', list.begin, list.end);
    const inner = items.map((item, i) => `${indent}  ${item}${i < items.length - 1 ? ',' : ''}`);
    return [line.slice(0, list.begin), ...inner, indent + line.slice(list.end)];
  }
  const [union = -1] = separators(line, ' = ', 0, line.length);
  const members = union < 0 ? [] : pieces(line, ' | ', union + 3, line.length);
  if (members.length < 2) return [line];
  return [line.slice(0, union + 2), ...members.map((member) => `${indent}  | ${member}`)];
}
