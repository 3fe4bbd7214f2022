/** The length of Python functions, which no linter of this workspace counts. */

/** Where the text of a line begins. Brackets that close parameters continue the line that opened them. */
const begin = /^( *)(?=[^\s)\]}])/;
const definition = /^ *(?:async )?def /;

/** The longest function of a Python file with all that it contains; 0 lines for a file without functions. */
export function longestPythonFunction(text: string): { readonly lines: number; readonly line: number } {
  const lines = text.split('\n');
  let longest = { lines: 0, line: 1 };
  for (const [index, head] of lines.entries()) {
    if (!definition.test(head)) continue;
    const depth = head.search(/\S/);
    let end = index + 1;
    for (let at = index + 1; at < lines.length; at++) {
      const line = lines[at] as string;
      const found = begin.exec(line)?.[1];
      if (found !== undefined && found.length <= depth) break;
      if (line.trim() !== '') end = at + 1;
    }
    if (end - index > longest.lines) longest = { lines: end - index, line: index + 1 };
  }
  return longest;
}
