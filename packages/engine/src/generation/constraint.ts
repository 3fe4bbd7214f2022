/** Constrained generation: the tokens that a grammar or schema allows at each step. */
import {
  createTokenGrammarSliced,
  createTokenTrieSliced,
  formatGrammar,
  jsonSchemaGrammarSliced,
  parseGrammarSliced,
  type Grammar,
  type GrammarMatcher,
  type JsonSchema,
  type TimeLimit,
  type TokenGrammar,
  type TokenMask,
  type TokenTrie,
} from '@winnow/grammar';
import { ArgumentError, type Sliced } from '@winnow/tensor';
import type { Tokenizer } from '@winnow/tokenizers';
import { Compilations, deadlineOf } from '../runtime/compilation.js';
import type { SpanLimit } from '../chat/span-limit.js';
import { checkSpanLimit, SpanConstraint } from './span-limit.js';

/** Options that constrain the text. */
export interface ConstraintOptions {
  readonly grammar?: string | Grammar;
  readonly jsonSchema?: JsonSchema;
  readonly compileTimeoutMs?: number;
  readonly showTokens?: readonly string[];
  readonly ignoreEos?: boolean;
  readonly spanLimit?: SpanLimit;
}

/** The grammar state of one generation. */
export interface Constraint {
  /** Tokens that may come next. @throws {ArgumentError} when there is none */
  mask(): TokenMask;
  /** Computes the mask ahead of time. */
  prepare(): void;
  /** A token was chosen. */
  accept(tokenId: number): void;
  /** The text matches as it stands. */
  readonly isSatisfied: boolean;
  /** The text matches, and nothing can follow. */
  readonly isComplete: boolean;
}

/** Maximum number of cached grammars with their masks (least recently used go first). */
const maxGrammars = 8;

/** Grammars and schemas over one vocabulary. */
export class Constraints {
  readonly #tokenizer: Tokenizer;
  readonly #vocabSize: number;
  readonly #eosIds: ReadonlySet<number>;
  readonly #now: () => number;
  readonly #tries = new Map<string, TokenTrie>();
  readonly #grammars = new Compilations<TokenGrammar>(maxGrammars);

  /** @param vocabSize rows of the logits; rows without a token are never allowed */
  constructor(tokenizer: Tokenizer, vocabSize: number, eosIds: ReadonlySet<number>, now: () => number) {
    this.#now = now;
    this.#tokenizer = tokenizer;
    this.#vocabSize = vocabSize;
    this.#eosIds = eosIds;
  }

  /**
   * Undefined without a grammar, a schema or a limit. Compiles in slices, so that the event loop is never blocked for long.
   * @throws {FormatError} for invalid grammars and for schemas that cannot be enforced
   * @throws {CapacityError} for those that are too large or take too long
   * @throws {ArgumentError} for both at once, and for `showTokens` that are not in the vocabulary
   */
  async start(options: ConstraintOptions, signal?: AbortSignal): Promise<Constraint | undefined> {
    const spanLimit = options.spanLimit === undefined ? undefined : checkSpanLimit(options.spanLimit);
    const inner = await this.#startGrammar(options, signal);
    if (spanLimit === undefined) return inner;
    const [tokenizer, vocabSize, shown] = [this.#tokenizer, this.#vocabSize, this.shownTokens(options)];
    const decoder = new TextDecoder();
    const textOf = (id: number): string => {
      if (id >= tokenizer.vocabSize) return '';
      return shown.get(id) ?? (tokenizer.isSpecial(id) ? '' : decoder.decode(tokenizer.tokenBytes(id)));
    };
    return new SpanConstraint(spanLimit, inner, { tokenizer, vocabSize, textOf });
  }

  /** Requests for the same grammar share one compilation, which stops when none of them waits for it anymore. */
  async #startGrammar(options: ConstraintOptions, signal: AbortSignal | undefined): Promise<Constraint | undefined> {
    const { grammar, jsonSchema, showTokens = [], ignoreEos = false } = options;
    if (grammar === undefined && jsonSchema === undefined) return undefined;
    if (grammar !== undefined && jsonSchema !== undefined) {
      const [expected, actual] = ['a grammar or a JSON schema', 'both'];
      throw new ArgumentError({ argument: 'grammar', expected, actual });
    }
    const deadline = deadlineOf(options.compileTimeoutMs, this.#now);
    const source = jsonSchema === undefined ? keyOf(grammar as string | Grammar) : JSON.stringify(jsonSchema);
    const key = JSON.stringify([jsonSchema === undefined, source, [...showTokens].sort(), ignoreEos]);
    const rules = (limit: TimeLimit): Sliced<Grammar> =>
      jsonSchema === undefined
        ? asGrammar(grammar as string | Grammar, limit)
        : jsonSchemaGrammarSliced(jsonSchema, { deadline: limit });
    const endTokens = ignoreEos ? [] : [...this.#eosIds];
    const compilation = this.#grammars.get(key, (limit) =>
      this.#compile(rules(limit), this.#trieOf(this.shownTokens(options)), endTokens, limit),
    );
    return createConstraint((await compilation.wait({ deadline, signal })).start());
  }

  /** Texts of the control tokens to show, by id. */
  shownTokens({ showTokens = [] }: ConstraintOptions): ReadonlyMap<number, string> {
    return new Map(
      showTokens.map((text) => {
        const id = this.#tokenizer.idOf(text);
        if (id !== undefined) return [id, text];
        const expected = 'tokens of the vocabulary';
        throw new ArgumentError({ argument: 'showTokens', expected, actual: JSON.stringify(text) });
      }),
    );
  }

  *#trieOf(shown: ReadonlyMap<number, string>): Sliced<TokenTrie> {
    const key = JSON.stringify([...shown.keys()].sort((a, b) => a - b));
    const known = this.#tries.get(key);
    if (known !== undefined) return known;
    const tokenizer = this.#tokenizer;
    const trie = yield* createTokenTrieSliced({
      vocabSize: this.#vocabSize,
      tokenBytes: (id): Uint8Array | undefined => {
        if (id >= tokenizer.vocabSize) return undefined;
        const isHidden = !shown.has(id) && (this.#eosIds.has(id) || tokenizer.isSpecial(id));
        return isHidden ? undefined : tokenizer.tokenBytes(id);
      },
    });
    this.#tries.set(key, trie);
    return trie;
  }

  *#compile(
    rules: Sliced<Grammar>,
    vocabulary: Sliced<TokenTrie>,
    endTokens: readonly number[],
    deadline: TimeLimit,
  ): Sliced<TokenGrammar> {
    const grammar = yield* rules;
    const tokenId = (text: string): number | undefined => this.#tokenizer.idOf(text);
    const trie = yield* vocabulary;
    return yield* createTokenGrammarSliced({ grammar, trie, endTokens, tokenId, deadline });
  }
}

function createConstraint(matcher: GrammarMatcher): Constraint {
  return {
    mask(): TokenMask {
      const mask = matcher.mask();
      if (mask.numTokens > 0) return mask;
      const [expected, actual] = [
        'a grammar that tokens of this vocabulary can continue',
        'a point where no token can follow',
      ];
      throw new ArgumentError({ argument: 'grammar', expected, actual });
    },
    prepare(): void {
      try {
        matcher.mask();
      } catch {
        // `mask` fails again and reports it
      }
    },
    accept: (tokenId) => void matcher.accept(tokenId),
    get isSatisfied(): boolean {
      return matcher.canEnd;
    },
    get isComplete(): boolean {
      return matcher.canEnd && matcher.isComplete;
    },
  };
}

function* asGrammar(grammar: string | Grammar, deadline: TimeLimit): Sliced<Grammar> {
  return typeof grammar === 'string' ? yield* parseGrammarSliced(grammar, 'root', { deadline }) : grammar;
}

const numbers = new WeakMap<Grammar, number>();
let numGrammars = 0;

/** The text of a grammar, or a number for an object, whose text may be long. */
function keyOf(grammar: string | Grammar): string {
  if (typeof grammar === 'string') return grammar;
  let number = numbers.get(grammar);
  if (number === undefined) numbers.set(grammar, (number = numGrammars++));
  return `#${number}`;
}

/** A grammar as text, which parses to the same language. */
export function textOf(grammar: string | Grammar): string {
  return typeof grammar === 'string' ? grammar : formatGrammar(grammar);
}
