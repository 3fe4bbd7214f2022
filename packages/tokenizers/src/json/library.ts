/**
 * Typed access to the parts of `@huggingface/tokenizers` in use: its own declarations import files without an
 * extension, which TypeScript does not resolve under `nodenext`.
 */
import * as library from '@huggingface/tokenizers';

interface Library {
  readonly Tokenizer: new (
    tokenizer: object,
    config: object,
  ) => {
    encode(text: string, options: { readonly add_special_tokens: boolean }): { readonly ids: readonly number[] };
    decode(ids: readonly number[], options: { readonly skip_special_tokens: boolean }): string;
  };
  readonly SplitPreTokenizer: new (config: object) => { readonly pattern: RegExp | null };
}

export type LibraryTokenizer = InstanceType<Library['Tokenizer']>;

const typed = library as unknown as Library;

/** A tokenizer of the library. @throws Error for components that it does not support */
export function openLibraryTokenizer(tokenizer: object, config: object): LibraryTokenizer {
  return new typed.Tokenizer(tokenizer, config);
}

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
