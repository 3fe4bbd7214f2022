import type { LogitsOptions, Model } from '@winnow/engine';
import { expect, it } from 'vitest';
import { compareForced, createBaseRows } from './forced-decoding.js';

const tokens = Int32Array.of(0, 1, 2, 0, 1);
const row = (...probabilities: number[]): Float32Array => Float32Array.from(probabilities, Math.log);

/** A model with given rows that counts its runs and its pending rows. */
function fakeModel(rowOf: (position: number) => Float32Array, failAt = -1) {
  const seen = { runs: 0, phases: [] as unknown[] };
  const model = {
    config: { vocabSize: 3 },
    async logprobs(_tokens: ArrayLike<number>, { positions = [], onRow, phase, signal }: LogitsOptions = {}) {
      seen.runs += 1;
      seen.phases.push(phase);
      for (const position of positions) {
        await Promise.resolve();
        signal?.throwIfAborted();
        if (position === failAt) throw new Error(`broken at ${position}`);
        await onRow?.(position, rowOf(position));
      }
      return [];
    },
  };
  return { model: model as unknown as Model, seen };
}

const flat = (): Float32Array => row(0.5, 0.25, 0.25);
const other = (position: number): Float32Array => (position === 2 ? row(0.25, 0.5, 0.25) : flat());

it('compares equal positions, whether base rows are stored or recomputed', async () => {
  for (const maxBytes of [1000, 0]) {
    const base = fakeModel(flat);
    const rows = await createBaseRows(base.model, tokens, { maxBytes });
    for (const phase of ['prefill', 'decode'] as const) {
      const tested = fakeModel(other);
      const report = await compareForced(rows, tested.model, { tokens, phase });
      expect(report.numTokens).toBe(4);
      expect(report.divergence.mean).toBeCloseTo((0.25 * Math.LN2) / 4, 6);
      expect(report.divergence.max).toBeCloseTo(0.25 * Math.LN2, 6);
      expect(report.sameTop.mean).toBe(0.75);
      expect(tested.seen.phases).toEqual([phase]);
    }
    expect(base.seen.runs).toBe(maxBytes === 0 ? 2 : 1);
  }
});

it('a failure of either run stops both', async () => {
  for (const maxBytes of [1000, 0]) {
    const rows = await createBaseRows(fakeModel(flat).model, tokens, { maxBytes });
    await expect(compareForced(rows, fakeModel(flat, 2).model, { tokens })).rejects.toThrow('broken at 2');
  }
  const failing = await createBaseRows(fakeModel(flat, 1).model, tokens, { maxBytes: 0 });
  await expect(compareForced(failing, fakeModel(flat).model, { tokens })).rejects.toThrow('broken at 1');
});

it('can be aborted', async () => {
  const rows = await createBaseRows(fakeModel(flat).model, tokens);
  const reason = new Error('enough');
  await expect(compareForced(rows, fakeModel(flat).model, { tokens, signal: AbortSignal.abort(reason) })).rejects.toBe(
    reason,
  );
});
