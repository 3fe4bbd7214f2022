/** The top tokens of a step with their log-probabilities. */
import type { ReadOutput } from '../memory/step-outputs.js';
import type { TokenLogprob } from './generation.js';

export class TopReader {
  readonly #ids: Int32Array;
  readonly #logits: Float32Array;
  readonly #logSumExp = new Float32Array(1);

  constructor(count: number) {
    this.#ids = new Int32Array(count);
    this.#logits = new Float32Array(count);
  }

  async read(read: ReadOutput): Promise<readonly TokenLogprob[]> {
    await read('topIndices', this.#ids);
    await read('topValues', this.#logits);
    await read('logSumExp', this.#logSumExp);
    return Array.from(this.#ids, (tokenId, rank) => ({
      tokenId,
      logprob: (this.#logits[rank] as number) - (this.#logSumExp[0] as number),
    }));
  }
}
