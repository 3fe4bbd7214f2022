/** Scores of a layer's predictor for hidden states, computed as in programs. */
import { BoundProgram, type Backend } from '@winnow/ops';
import type { FeedForwardShape } from '../blocks/feed-forward-weights.js';
import { inputRows, runRows } from '../blocks/input-rows.js';
import { appendScores, scoreWeights } from '../lowering/low-rank-scores.js';
import type { ScoreTables } from '../sidecar/sidecar.js';

type ScoreShape = Pick<FeedForwardShape, 'hiddenDim' | 'ffnDim' | 'activation'>;

/** Scores of a low-rank predictor. One call at a time. */
export class PredictorScores {
  readonly #program: BoundProgram;
  readonly #shape: ScoreShape;

  private constructor(program: BoundProgram, shape: ScoreShape) {
    this.#program = program;
    this.#shape = shape;
  }

  /** @param maxTokens maximum number of rows per run */
  static async create(
    backend: Backend,
    tables: ScoreTables,
    shape: ScoreShape,
    maxTokens: number,
  ): Promise<PredictorScores> {
    const { hiddenDim, activation } = shape;
    const weights = new Map([...scoreWeights(tables)].map(([name, { bytes }]) => [name, bytes]));
    const program = await BoundProgram.prepare({ backend, symbols: { T: maxTokens }, weights }, (b) => {
      const x = inputRows(b, hiddenDim);
      const scores = appendScores(b, tables, { x, activation }, (name) => name);
      b.output('scores', scores);
    });
    return new PredictorScores(program, shape);
  }

  /** @returns `[n, F]`, such as `q (p x)` */
  async of(x: Float32Array): Promise<Float32Array> {
    const { hiddenDim, ffnDim } = this.#shape;
    const scores = new Float32Array((x.length / hiddenDim) * ffnDim);
    await runRows(this.#program, x, hiddenDim, (begin, end) =>
      this.#program.read('scores', scores.subarray(begin * ffnDim, end * ffnDim)),
    );
    return scores;
  }

  close(): Promise<void> {
    return this.#program.close();
  }
}
