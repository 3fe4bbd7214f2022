/** Parses the regular expressions of tokenizer.json, after their translation to JavaScript with flag `u`. */

/** The parts of an expression; `source` of a class is JavaScript's syntax for one character. */
export type Expression =
  | { readonly kind: 'class'; readonly source: string }
  | { readonly kind: 'sequence'; readonly items: readonly Expression[] }
  | { readonly kind: 'choice'; readonly alternatives: readonly Expression[] }
  | {
      readonly kind: 'repeat';
      readonly item: Expression;
      readonly min: number;
      readonly max: number;
      readonly lazy: boolean;
    }
  | { readonly kind: 'look'; readonly behind: boolean; readonly negated: boolean; readonly body: Expression };

const MAX_DEPTH = 64;
const QUANTIFIER = /(?:([*+?])|\{(\d+)(,?)(\d*)\})(\??)/y;
const SURROGATES = /\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}/;
const ESCAPE = /\\(?:[pP]\{[^}]*\}|u\{[0-9a-fA-F]+\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|c[a-zA-Z]|[^1-9kbB])/;
const ATOM = new RegExp(`${SURROGATES.source}|${ESCAPE.source}|[^\\\\[\\](){}*+?|^$]`, 'uy');
const CLASS = /\[(?:[^\\\]]|\\.)*\]/suy;
const GROUP = /\((?:\?(:|=|!|<=|<!|<[^>=!]+>))?/y;

/** @throws SyntaxError for syntax without a linear-time meaning (backreferences) or beyond the subset in use */
export function parseExpression(source: string): Expression {
  const parser = new Parser(source);
  return parser.parse();
}

/** Whether an expression matches the empty text. */
export function isNullable(expression: Expression): boolean {
  switch (expression.kind) {
    case 'class':
      return false;
    case 'look':
      return true;
    case 'sequence':
      return expression.items.every(isNullable);
    case 'choice':
      return expression.alternatives.some(isNullable);
    case 'repeat':
      return expression.min === 0 || isNullable(expression.item);
  }
}

/**
 * Whether backtracking is impossible: repeated parts are single characters, and only the end of an alternative follows
 * them, so that what they matched is never tried again.
 */
export function neverBacktracks(expression: Expression): boolean {
  if (expression.kind === 'choice') return expression.alternatives.every(neverBacktracks);
  const items = expression.kind === 'sequence' ? expression.items : [expression];
  return items.every(
    (item, index) =>
      item.kind === 'class' || (item.kind === 'repeat' && item.item.kind === 'class' && index === items.length - 1),
  );
}

class Parser {
  readonly #source: string;
  #at = 0;

  constructor(source: string) {
    this.#source = source;
  }

  parse(): Expression {
    const expression = this.#choice(0);
    if (this.#at < this.#source.length) throw this.#error('expected the end');
    return expression;
  }

  #choice(depth: number): Expression {
    if (depth > MAX_DEPTH) throw this.#error(`expected at most ${MAX_DEPTH} nested groups`);
    const alternatives = [this.#sequence(depth)];
    while (this.#source[this.#at] === '|') {
      this.#at++;
      alternatives.push(this.#sequence(depth));
    }
    return alternatives.length === 1 ? alternatives[0]! : { kind: 'choice', alternatives };
  }

  #sequence(depth: number): Expression {
    const items: Expression[] = [];
    while (this.#at < this.#source.length && this.#source[this.#at] !== '|' && this.#source[this.#at] !== ')') {
      items.push(this.#quantified(this.#item(depth)));
    }
    return items.length === 1 ? items[0]! : { kind: 'sequence', items };
  }

  #item(depth: number): Expression {
    const group = this.#take(GROUP);
    if (group !== undefined) {
      const body = this.#choice(depth + 1);
      if (this.#source[this.#at] !== ')') throw this.#error('expected )');
      this.#at++;
      const kind = group[1] ?? ':';
      if (!/^(?:=|!|<=|<!)$/.test(kind)) return body;
      return { kind: 'look', behind: kind.startsWith('<'), negated: kind.endsWith('!'), body };
    }
    const atom = this.#take(CLASS) ?? this.#take(ATOM);
    if (atom === undefined) throw this.#error('expected a character, a class or a group');
    return { kind: 'class', source: atom[0] };
  }

  #quantified(item: Expression): Expression {
    const match = this.#take(QUANTIFIER);
    if (match === undefined) return item;
    const [, sign, least, comma, most, lazy] = match;
    const min = sign === undefined ? Number(least) : sign === '+' ? 1 : 0;
    const max =
      sign === undefined ? (comma === '' ? min : most === '' ? Infinity : Number(most)) : sign === '?' ? 1 : Infinity;
    if (max > 1 && isNullable(item)) throw this.#error('expected a repeated part that matches at least one character');
    return { kind: 'repeat', item, min, max, lazy: lazy === '?' };
  }

  #take(pattern: RegExp): RegExpExecArray | undefined {
    pattern.lastIndex = this.#at;
    const match = pattern.exec(this.#source);
    if (match === null) return undefined;
    this.#at += match[0].length;
    return match;
  }

  #error(message: string): SyntaxError {
    return new SyntaxError(`${message} at character ${this.#at}`);
  }
}
