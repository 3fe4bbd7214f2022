import type { CalibrationPhase, CalibrationProgress } from './options.js';
import { totalLength, type SampleParts } from './samples.js';

/** Tracks progress. Training tokens count twice: once for the model, once for the predictors. */
export class ProgressCounter {
  readonly #onProgress: ((progress: CalibrationProgress) => void) | undefined;
  readonly #ends: Readonly<Record<CalibrationPhase, number>>;
  readonly #begins: Readonly<Record<CalibrationPhase, number>>;
  #done = 0;

  constructor(
    { train, select, verify }: SampleParts,
    onProgress: ((progress: CalibrationProgress) => void) | undefined,
  ) {
    this.#onProgress = onProgress;
    const [numTrain, numSelect, numVerify] = [totalLength(train), totalLength(select), totalLength(verify)];
    this.#begins = { scan: 0, train: numTrain, select: 3 * numTrain, verify: 3 * numTrain + numSelect };
    this.#ends = {
      scan: numTrain,
      train: 3 * numTrain,
      select: 3 * numTrain + numSelect,
      verify: 3 * numTrain + numSelect + numVerify,
    };
  }

  /** @param done samples of the phase that an earlier run finished */
  begin(phase: CalibrationPhase, done: readonly ArrayLike<number>[]): void {
    this.#done = this.#begins[phase] + totalLength(done) * (phase === 'train' ? 2 : 1);
    this.add(phase, 0);
  }

  add(phase: CalibrationPhase, numTokens: number): void {
    this.#done = Math.min(this.#done + numTokens, this.#ends[phase]);
    this.#onProgress?.({ phase, doneTokens: Math.round(this.#done), totalTokens: this.#ends.verify });
  }
}
