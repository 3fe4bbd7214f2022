/**
 * Typed access to the part of `@huggingface/tokenizers` in use: its own declarations import files without an
 * extension, which TypeScript does not resolve under `nodenext`.
 */
import * as library from '@huggingface/tokenizers';

interface Library {
  readonly SplitPreTokenizer: new (config: object) => { readonly pattern: RegExp | null };
}

const typed = library as unknown as Library;

/** An Oniguruma expression as a JavaScript one. @throws SyntaxError for syntax that cannot be translated */
export function translateOniguruma(expression: string): RegExp {
  const { pattern } = new typed.SplitPreTokenizer({
    type: 'Split',
    pattern: { Regex: expression },
    behavior: 'Isolated',
    invert: false,
  });
  if (pattern === null) throw new SyntaxError('no pattern');
  return pattern;
}
