/** The state of a sequence under `h2o-prefill`, in the layout of the op `h2o-attention`. */
import type { Backend, BufferHandle } from '@winnow/ops';
import { ArgumentError } from '@winnow/tensor';
import type { H2oPrefillPolicy } from '../policy/kinds.js';

/** Memory of one KV head. */
export interface HeavyHitters {
  /** Positions in memory, ascending. */
  readonly positions: Int32Array;
  /** Their scores: softmax weights summed over the queries so far. */
  readonly scores: Float32Array;
  /** Scores of the tokens of the open chunk. */
  readonly chunkScores: Float32Array;
}

export interface HeavyHitterOptions {
  readonly backend: Backend;
  readonly policy: H2oPrefillPolicy;
  readonly numKvHeads: number;
  /** Memory of an external tensor; undefined before the first query. */
  readonly bufferOf: (name: string) => BufferHandle | undefined;
}

/** Reads the state and rolls back queries of the open chunk. */
export class HeavyHitterState {
  /** Number of tokens whose queries contributed to scores, or that other policies appended. */
  length = 0;
  /** Whether there is no state yet. */
  isNew = true;
  readonly #options: HeavyHitterOptions;

  constructor(options: HeavyHitterOptions) {
    this.#options = options;
  }

  /** @throws {ArgumentError} for queries before others that already contributed */
  checkBegin(begin: number): void {
    if (begin >= this.length) return;
    const expected = `${this.length} or later, since scores accumulate in order`;
    throw new ArgumentError({ argument: 'h2o-prefill: begin', expected, actual: String(begin) });
  }

  async read(): Promise<HeavyHitters[]> {
    const { numKvHeads, policy } = this.#options;
    const progress = await this.#words('h2oProgress');
    const memory = await this.#words('h2oMemory');
    const scores = new Float32Array((await this.#words('h2oScores')).buffer);
    const chunkScores = new Float32Array((await this.#words('h2oChunk')).buffer);
    const capacity = memory.length / numKvHeads;
    const numOpen = this.length % policy.chunk;
    return Array.from({ length: numKvHeads }, (_, head): HeavyHitters => {
      const [begin, count] = [head * capacity, progress[2 * head + 1] ?? 0];
      return {
        positions: memory.slice(begin, begin + count),
        scores: scores.slice(begin, begin + count),
        chunkScores: chunkScores.slice(head * policy.chunk, head * policy.chunk + numOpen),
      };
    });
  }

  /** @throws {ArgumentError} for a length before the open chunk, whose memory cannot be undone */
  checkTruncate(length: number): void {
    const chunkBegin = this.length - (this.length % this.#options.policy.chunk);
    if (length >= chunkBegin) return;
    const expected = `at least ${chunkBegin}, where the open chunk begins`;
    throw new ArgumentError({ argument: 'h2o-prefill: truncate', expected, actual: String(length) });
  }

  /** Forgets tokens from `length` on; what their queries added to earlier tokens stays. */
  async truncate(length: number): Promise<void> {
    if (length >= this.length) return;
    const { backend, bufferOf, numKvHeads, policy } = this.#options;
    const [progress, chunk] = [bufferOf('state.0.h2oProgress'), bufferOf('state.0.h2oChunk')];
    if (progress !== undefined && chunk !== undefined) {
      const next = new Uint8Array(Int32Array.of(length).buffer);
      const zeros = new Uint8Array(4 * (this.length - length));
      for (let head = 0; head < numKvHeads; head++) {
        await backend.write(progress, 8 * head, next);
        await backend.write(chunk, 4 * (head * policy.chunk + (length % policy.chunk)), zeros);
      }
    }
    this.length = length;
  }

  async #words(name: string): Promise<Int32Array> {
    const buffer = this.#options.bufferOf(`state.0.${name}`);
    const words = new Int32Array((buffer?.sizeBytes ?? 0) / 4);
    if (buffer !== undefined) await this.#options.backend.read(buffer, 0, new Uint8Array(words.buffer));
    return words;
  }
}
