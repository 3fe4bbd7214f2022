/** What the predictor of a layer says of hidden states, computed as programs will. */
import { createScalarBlock, ProgramBuilder, type Backend, type BufferHandle } from '@winnow/ops';
import type { FeedForwardShape } from '../plain/feed-forward.js';
import { bytesOf } from '../plain/bytes.js';
import { appendScores, scoreWeights } from '../predictors/low-rank-scores.js';
import type { ScoreTables } from '../sidecar/sidecar.js';

/** Scores of a predictor of low rank. */
export interface PredictorScores {
  /** @returns `[n, F]`, such as `q (p x)` */
  scores(x: Float32Array, numTokens: number): Promise<Float32Array>;
  dispose(): Promise<void>;
}

/** @param maxTokens rows that are computed at once */
export async function createPredictorScores(
  backend: Backend,
  tables: ScoreTables,
  { hiddenDim, ffnDim, activation }: Pick<FeedForwardShape, 'hiddenDim' | 'ffnDim' | 'activation'>,
  maxTokens: number,
): Promise<PredictorScores> {
  const b = new ProgramBuilder({});
  const x = b.external('x', 'kv', 'f32', [maxTokens, hiddenDim]);
  b.output(
    'scores',
    appendScores(b, tables, { x, activation }, (name) => name),
  );
  const program = b.build();
  const handles = new Map<string, BufferHandle>();
  for (const { name, usage, sizeBytes } of program.buffers) {
    if (usage !== 'weights' && usage !== 'kv') continue;
    handles.set(name, backend.allocate({ sizeBytes, usage, label: `predictor ${name}` }));
  }
  for (const [name, { bytes }] of scoreWeights(tables))
    await backend.write(handles.get(name) as BufferHandle, 0, bytes);
  const executable = await backend.prepare(program, { buffers: handles });
  const { words } = createScalarBlock(program.scalars, program.symbols);
  return {
    async scores(states, numTokens) {
      const out = new Float32Array(numTokens * ffnDim);
      for (let begin = 0; begin < numTokens; begin += maxTokens) {
        const end = Math.min(begin + maxTokens, numTokens);
        const rows = states.subarray(begin * hiddenDim, end * hiddenDim);
        await backend.write(handles.get('x') as BufferHandle, 0, bytesOf(rows));
        await executable.run(words); // also for rows of before, if there are fewer now: nobody reads those
        await executable.read('scores', out.subarray(begin * ffnDim, end * ffnDim));
      }
      return out;
    },
    async dispose() {
      await executable.dispose();
      for (const handle of handles.values()) backend.free(handle);
    },
  };
}
