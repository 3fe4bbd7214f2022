/** What the user may type instead of a command line that failed: the "try:" line below an error. */

/** The arguments of another command line; or an argument of the failed one and what to write in its place, or after all of them. */
export type Suggestion =
  | readonly string[]
  | { readonly argument: string; readonly instead: readonly string[] }
  | { readonly after: readonly string[] };

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
  return `  try: winnow ${withoutKeys(suggested(suggestion, argv)).map(quoted).join(' ')}\n`;
}

function suggested(suggestion: Suggestion, argv: readonly string[]): readonly string[] {
  if ('after' in suggestion) return [...argv, ...suggestion.after];
  if (!('argument' in suggestion)) return suggestion;
  const { argument, instead } = suggestion;
  const at = argv.indexOf(argument, 1); // the command may have the same name
  return at < 0 ? instead : [...argv.slice(0, at), ...instead, ...argv.slice(at + 1)];
}

/** Errors end up in logs. */
function withoutKeys(argv: readonly string[]): string[] {
  return argv.map((argument, index) => {
    if (argv[index - 1] === '--api-key') return 'KEY';
    return argument.replace(/^--api-key=.*/s, '--api-key=KEY');
  });
}

/** Quoted for a POSIX shell. */
function quoted(argument: string): string {
  return /^[\w./:@=,+-]+$/.test(argument) ? argument : `'${argument.replaceAll("'", "'\\''")}'`;
}
