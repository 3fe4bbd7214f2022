/** What the user may type instead of a command line that failed: the "try:" line below an error. */

/** A whole command line, or an argument of the failed one and what to write in its place. */
export type Suggestion = string | { readonly argument: string; readonly instead: readonly string[] };

const suggestions = new WeakMap<object, Suggestion>();

/** Attaches a suggestion to an error and returns the error. */
export function suggest<T extends object>(error: T, suggestion: Suggestion): T {
  suggestions.set(error, suggestion);
  return error;
}

/** The line to print below the error, empty without a suggestion. */
export function suggestionLine(error: unknown, argv: readonly string[]): string {
  const suggestion = typeof error === 'object' && error !== null ? suggestions.get(error) : undefined;
  if (suggestion === undefined) return '';
  if (typeof suggestion === 'string') return `  try: ${suggestion}\n`;
  const { argument, instead } = suggestion;
  const at = argv.indexOf(argument);
  const line = at < 0 ? instead : [...argv.slice(0, at), ...instead, ...argv.slice(at + 1)];
  return `  try: winnow ${line.map(quoted).join(' ')}\n`;
}

/** Quoted for a POSIX shell. */
function quoted(argument: string): string {
  return /^[\w./:@=,+-]+$/.test(argument) ? argument : `'${argument.replaceAll("'", "'\\''")}'`;
}
