/**
 * The symbols that merging works on: ids below the vocabulary size are tokens, larger ones are pieces of text that are
 * not tokens (a character outside the vocabulary, a merge result without an id).
 */
export class SymbolTable {
  readonly numTokens: number;
  readonly #idByText: ReadonlyMap<string, number>;
  readonly #extraByText = new Map<string, number>();
  readonly #texts: string[];

  constructor(texts: readonly string[], idByText: ReadonlyMap<string, number>) {
    this.numTokens = texts.length;
    this.#idByText = idByText;
    this.#texts = [...texts];
  }

  /** Symbol of a text, created on first use. */
  intern(text: string): number {
    const known = this.#idByText.get(text) ?? this.#extraByText.get(text);
    if (known !== undefined) return known;
    const symbol = this.#texts.push(text) - 1;
    this.#extraByText.set(text, symbol);
    return symbol;
  }

  textOf(symbol: number): string {
    return this.#texts[symbol]!;
  }

  /** Token id of a text, or -1. */
  tokenOf(text: string): number {
    return this.#idByText.get(text) ?? -1;
  }

  isToken(symbol: number): boolean {
    return symbol < this.numTokens;
  }
}

/** How a model handles a character that is not a token. */
export interface UnknownRule {
  /** Ids of `<0x00>` to `<0xFF>`, -1 where missing; `undefined`: no byte fallback. */
  readonly byteIds: Int32Array | undefined;
  /** Id when there are no byte tokens either; `undefined`: the character is dropped. */
  readonly unkId: number | undefined;
  /** Consecutive unknown characters share one id. */
  readonly fuse: boolean;
}

/** Ids of the byte tokens `<0x00>` to `<0xFF>`, or `undefined` when there are none. */
export function findByteIds(
  idByText: ReadonlyMap<string, number>,
  spelling: (byte: number) => string,
): Int32Array | undefined {
  const ids = new Int32Array(256);
  let found = false;
  for (let byte = 0; byte < 256; byte++) {
    ids[byte] = idByText.get(spelling(byte)) ?? -1;
    found ||= ids[byte]! >= 0;
  }
  return found ? ids : undefined;
}
