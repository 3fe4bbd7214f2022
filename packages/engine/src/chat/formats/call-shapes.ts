/** How models write single calls, as data for parsers and grammars. */

/** A call whose name comes before the JSON object of its arguments. */
export interface NamedShape {
  /** What stands before the arguments: groups `name` and, if the model numbers its calls, `id`. */
  readonly head: RegExp;
  /** Texts after the arguments, each of which may be missing, in this order. */
  readonly tail: readonly string[];
  /** Another call follows it in the same section. */
  readonly separator?: string;
}

/** A call whose arguments are written one by one, between tags. */
export interface TaggedShape {
  /** The beginning of a call, before its name; empty where the section begins with the name. */
  readonly open: string;
  /** Texts that end the name. Those of `keepsNameEnd` are not part of it, but begin what follows. */
  readonly nameEnds: readonly string[];
  readonly keepsNameEnd?: boolean;
  readonly close: string;
  readonly argument: {
    readonly open: string;
    /** Texts that end the key. */
    readonly keyEnds: readonly string[];
    /** After the key and white space. */
    readonly valueOpen?: string;
    readonly close: string;
    /** The whole of it, with `{key}` and `{value}`; `{isText}` is `true` or `false`. */
    readonly written: string;
  };
}

/** A call in the syntax of a program. */
export interface LiteralShape {
  /** Before the name of a call. */
  readonly open: string;
  /** Around the arguments. */
  readonly brackets: readonly [string, string];
  /** Between a name and the value of an argument. */
  readonly assignment: string;
  /** Around strings; none is a prefix of another. */
  readonly quotes: readonly string[];
  /** A backslash begins an escape in a string. */
  readonly hasEscapes: boolean;
  /** Several calls form a list. */
  readonly isList: boolean;
}
