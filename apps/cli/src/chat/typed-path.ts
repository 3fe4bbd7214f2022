/** Paths in commands that have more arguments, quoted as in shells. */

/** The path at the beginning of a text, and the rest. Quotes around it, or a backslash before each space, keep spaces in it. */
export function pathAndText(argument: string): { readonly path: string; readonly text: string } {
  const [, double, single, bare = '', text = ''] =
    /^(?:"([^"]*)"|'([^']*)'|((?:\\\s|\S)*))\s*(.*)$/s.exec(argument) ?? [];
  return { path: double ?? single ?? unescapedSpaces(bare), text };
}

/** The path of a text that is nothing else so far; undefined when text follows it, or quotes begin it. */
export function unfinishedPath(argument: string): string | undefined {
  return /^(?!["'])(?:\\\s|\S)*$/s.test(argument) ? unescapedSpaces(argument) : undefined;
}

export function escapedSpaces(path: string): string {
  return path.replaceAll(/\s/g, '\\$&');
}

function unescapedSpaces(text: string): string {
  return text.replaceAll(/\\(\s)/g, '$1');
}
