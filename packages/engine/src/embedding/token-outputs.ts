/** Outputs of a text beside its vector, which models with token layers compute per token: lexical weights and multi-vectors. */
import { tokenOutputs } from '@winnow/models';
import type { Executable, Program } from '@winnow/ops';
import { ArgumentError } from '@winnow/tensor';
import type { Tokenizer } from '@winnow/tokenizers';

/** `sparse`: lexical weights. `multiVector`: a vector per token (late interaction, as in ColBERT). */
export type TokenOutput = 'sparse' | 'multiVector';

/** The values of a vector that are not zero, by ascending index. */
export interface SparseVector {
  readonly indices: Int32Array;
  readonly values: Float32Array;
}

const layerOf: Readonly<Record<TokenOutput, keyof typeof tokenOutputs>> = {
  sparse: 'sparse_linear',
  multiVector: 'colbert_linear',
};

const tokenOutputKinds: readonly TokenOutput[] = ['sparse', 'multiVector'];

/** The outputs that a program computes, with their values per token. */
export function tokenOutputsOf({ outputs }: Program): ReadonlyMap<TokenOutput, number> {
  const widths = new Map<TokenOutput, number>();
  for (const kind of tokenOutputKinds) {
    const width = outputs.get(tokenOutputs[layerOf[kind]])?.shape[1];
    if (typeof width === 'number') widths.set(kind, width);
  }
  return widths;
}

/** @throws {ArgumentError} for an output that does not exist, or that the model lacks */
export function checkTokenOutputs(asked: readonly TokenOutput[], known: ReadonlyMap<TokenOutput, number>): void {
  for (const kind of asked) {
    if (known.has(kind)) continue;
    const layer = tokenOutputKinds.includes(kind) ? layerOf[kind] : undefined;
    const expected =
      layer === undefined
        ? tokenOutputKinds.join(' | ')
        : `a model with ${layer}.pt or ${layer}.safetensors in its folder, such as BGE-M3`;
    throw new ArgumentError({ argument: 'outputs', expected, actual: String(kind) });
  }
}

/** What was collected for one text. */
export interface TokenValues {
  /** Largest weight of each token id. */
  readonly weights: Map<number, number>;
  readonly vectors: Float32Array[];
}

export function noTokenValues(): TokenValues {
  return { weights: new Map(), vectors: [] };
}

/** Reads the outputs of the steps of one call. */
export class TokenOutputReader {
  readonly #executable: Executable;
  readonly #widths: ReadonlyMap<TokenOutput, number>;
  readonly #isIgnored: (id: number) => boolean;
  #rows = new Map<TokenOutput, Float32Array>(); // [numTokens, width]
  /** The first value that is not finite. */
  nonFinite: number | undefined;

  constructor(executable: Executable, asked: readonly TokenOutput[], tokenizer: Tokenizer) {
    this.#executable = executable;
    const known = tokenOutputsOf(executable.program);
    this.#widths = new Map([...known].filter(([kind]) => asked.includes(kind)));
    const { bosId, clsId, eosId, sepId, padId, unkId } = tokenizer;
    const ignored = new Set([bosId, clsId, eosId, sepId, padId, unkId]);
    this.#isIgnored = (id) => ignored.has(id);
  }

  /** Reads the rows of the tokens of a step. */
  async read(numTokens: number): Promise<void> {
    this.#rows = new Map();
    for (const [kind, width] of this.#widths) {
      const rows = new Float32Array(numTokens * width);
      await this.#executable.read(tokenOutputs[layerOf[kind]], rows);
      this.nonFinite ??= rows.find((value) => !Number.isFinite(value));
      this.#rows.set(kind, rows);
    }
  }

  /**
   * Adds the rows of a text, or of a chunk of it.
   * @param begin of its tokens in the step
   * @param skippedIds tokens without a vector. Default: only the first token has none, whose vector is that of the whole text
   */
  add({ weights, vectors }: TokenValues, ids: Int32Array, begin: number, skippedIds?: ReadonlySet<number>): void {
    const [sparse, multi] = [this.#rows.get('sparse'), this.#rows.get('multiVector')];
    const width = this.#widths.get('multiVector') ?? 0;
    for (const [index, id] of ids.entries()) {
      const weight = sparse?.[begin + index] ?? 0;
      if (weight > (weights.get(id) ?? 0) && !this.#isIgnored(id)) weights.set(id, weight);
      if (multi === undefined || (skippedIds?.has(id) ?? index === 0)) continue;
      vectors.push(multi.slice((begin + index) * width, (begin + index + 1) * width));
    }
  }
}

/** By ascending id. */
export function sparseVectorOf(weights: ReadonlyMap<number, number>): SparseVector {
  const indices = Int32Array.from(weights.keys()).sort();
  return { indices, values: Float32Array.from(indices, (id) => weights.get(id) as number) };
}
