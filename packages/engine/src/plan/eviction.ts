/** The attention mass of each cached token, which programs accumulate for `kvCache.eviction`. */
import type { HeavyHitterOptions } from '@winnow/kv-cache';
import {
  lowerDenseAttention,
  type AttentionLowering,
  type Dim,
  type Executable,
  type ProgramTensor,
} from '@winnow/ops';
import { ArgumentError, type OptionNames } from '@winnow/tensor';

/** The least attended tokens are evicted, except these. */
export interface LeastAttendedOptions {
  /** Number of first tokens that are never evicted. Default 4; a quarter of contexts below 16 tokens. */
  readonly firstTokens?: number;
  /** Number of last tokens that are never evicted. Default: a quarter of the context. */
  readonly recentTokens?: number;
}

/**
 * Which tokens `overflow: 'evict'` drops: the oldest ones, or those with the least attention mass, summed over layers,
 * heads and queries (heavy hitters, arXiv:2306.14048).
 */
export type Eviction = 'oldest' | 'least-attended' | LeastAttendedOptions;

export const leastAttendedNames: OptionNames<LeastAttendedOptions> = { firstTokens: true, recentTokens: true };

/**
 * @param numKvHeads of each attention layer
 * @returns `undefined` when no attention mass is needed
 * @throws {ArgumentError} also for layers whose masses cannot be summed
 */
export function heavyHitterOptions(
  eviction: Eviction,
  contextSize: number,
  numKvHeads: readonly number[],
): HeavyHitterOptions | undefined {
  if (eviction === 'oldest') return undefined;
  if (eviction !== 'least-attended' && (typeof eviction !== 'object' || eviction === null)) {
    const expected = 'oldest | least-attended, or an object of firstTokens and recentTokens';
    throw new ArgumentError({ argument: 'kvCache.eviction', expected, actual: String(eviction) });
  }
  if (new Set(numKvHeads).size > 1) {
    const expected = 'oldest, since layers of this model have different numbers of KV heads';
    throw new ArgumentError({ argument: 'kvCache.eviction', expected, actual: 'least-attended' });
  }
  const options = eviction === 'least-attended' ? {} : eviction;
  const firstTokens = count('firstTokens', options.firstTokens ?? Math.min(4, contextSize >> 2));
  const recentWindow = count('recentTokens', options.recentTokens ?? contextSize >> 2);
  return { budget: contextSize, recentWindow, isGlobal: (position) => position < firstTokens };
}

function count(name: string, value: number): number {
  if (Number.isSafeInteger(value) && value >= 0) return value;
  throw new ArgumentError({
    argument: `kvCache.eviction.${name}`,
    expected: 'an integer from 0',
    actual: String(value),
  });
}

const outputName = 'keyMass';

/** Dense attention that accumulates the attention mass of each slot over the layers of a program. */
export class MassLowering {
  readonly #lastLayer: number;
  #previous: ProgramTensor | undefined;

  constructor(lastLayer: number) {
    this.#lastLayer = lastLayer;
  }

  readonly lower: AttentionLowering = (b, node) => {
    const { layer, q, positions, sequences, kv, scale, window, chunked = false, softCap, sinkLogits } = node;
    if (sinkLogits !== undefined) {
      const expected = 'oldest, since masses do not include the learned sinks of this model';
      throw new ArgumentError({ argument: 'kvCache.eviction', expected, actual: 'least-attended' });
    }
    const inputs = { q, positions, sequences, ...kv, previous: this.#previous };
    this.#previous = b.activation('attention-mass', inputs, { scale, window, chunked, softCap });
    if (layer === this.#lastLayer) b.output(outputName, this.#previous);
    return lowerDenseAttention(b, node);
  };
}

/** The attention mass of the last step. */
export class MassReader {
  readonly #executable: Executable;
  readonly #numKvHeads: number;
  readonly #maxSlots: number;
  readonly #masses: Float32Array; // [maxSequences, numKvHeads, maxSlots]
  readonly #sums: Float64Array; // [maxSlots]

  private constructor(executable: Executable, [maxSequences, numKvHeads, maxBlocks, blockSize]: readonly number[]) {
    this.#executable = executable;
    this.#numKvHeads = numKvHeads as number;
    this.#maxSlots = (maxBlocks as number) * (blockSize as number);
    this.#masses = new Float32Array((maxSequences as number) * this.#numKvHeads * this.#maxSlots);
    this.#sums = new Float64Array(this.#maxSlots);
  }

  /** @returns `undefined` for programs without attention mass */
  static create(executable: Executable): MassReader | undefined {
    const { outputs, symbols } = executable.program;
    const shape = outputs.get(outputName)?.shape;
    const sizeOf = (dim: Dim): number => (typeof dim === 'number' ? dim : (symbols.get(dim) as number));
    return shape && new MassReader(executable, shape.map(sizeOf));
  }

  /** Copies it, for the first `numSequences` sequences of the step. */
  read(numSequences: number): Promise<void> {
    const length = numSequences * this.#numKvHeads * this.#maxSlots;
    return this.#executable.read(outputName, this.#masses.subarray(0, length));
  }

  /** Mass of each logical slot of a sequence, summed over KV heads; valid until the next call. */
  of(sequence: number, numSlots: number): Float64Array {
    const own = this.#sums.subarray(0, numSlots);
    own.fill(0);
    for (let head = 0; head < this.#numKvHeads; head++) {
      const begin = (sequence * this.#numKvHeads + head) * this.#maxSlots;
      for (let slot = 0; slot < numSlots; slot++) {
        own[slot] = (own[slot] as number) + (this.#masses[begin + slot] as number);
      }
    }
    return own;
  }
}
