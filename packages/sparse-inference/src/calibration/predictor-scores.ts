/** What the predictor of a layer says of hidden states, computed as programs will. */
import { createScalarBlock, ProgramBuilder, type Backend, type BufferHandle } from '@winnow/ops';
import type { StoredMatrix } from '../sidecar/sidecar.js';
import { bytesOf } from '../plain/bytes.js';

/** Scores of a low-rank predictor. */
export interface PredictorScores {
  /** @returns `q (p x)`, `[n, F]` */
  scores(x: Float32Array, numTokens: number): Promise<Float32Array>;
  dispose(): Promise<void>;
}

/** @param maxTokens rows that are computed at once */
export async function createPredictorScores(
  backend: Backend,
  { p, q }: { readonly p: StoredMatrix; readonly q: StoredMatrix },
  maxTokens: number,
): Promise<PredictorScores> {
  const [hiddenDim, ffnDim] = [p.numColumns, q.numRows];
  const b = new ProgramBuilder({});
  const x = b.external('x', 'kv', 'f32', [maxTokens, hiddenDim]);
  const weightOf = (name: string, { dtype, numRows, numColumns }: StoredMatrix): ReturnType<typeof b.external> =>
    b.external(name, 'weights', dtype, [numRows, numColumns]);
  const z = b.activation('matmul', { x, weight: weightOf('p', p) });
  b.output('scores', b.activation('matmul', { x: z, weight: weightOf('q', q) }));
  const program = b.build();
  const handles = new Map<string, BufferHandle>();
  for (const { name, usage, sizeBytes } of program.buffers) {
    if (usage !== 'weights' && usage !== 'kv') continue;
    handles.set(name, backend.allocate({ sizeBytes, usage, label: `predictor ${name}` }));
  }
  await backend.write(handles.get('p') as BufferHandle, 0, p.bytes);
  await backend.write(handles.get('q') as BufferHandle, 0, q.bytes);
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
