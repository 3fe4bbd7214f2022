import { createWasmBackend } from '@winnow/backend-wasm';
import { createReferenceBackend, type ActivationKind, type Backend } from '@winnow/ops';
import { ArgumentError, ShapeError } from '@winnow/tensor';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { trueOutput, trueValues } from '../../test/block-truth.js';
import { goldenBlocks, randomBlock, randomRow } from '../../test/blocks.js';
import { FeedForwardBlock } from './feed-forward-block.js';

let backends: Record<'reference' | 'wasm', Backend>;
beforeAll(async () => {
  backends = {
    reference: createReferenceBackend(),
    wasm: await createWasmBackend({ numThreads: 1, activations: 'f32' }),
  };
});
afterAll(() => Promise.all(Object.values(backends).map((backend) => backend.dispose())));

/** Three sums of up to 40 f32 products, with values rounded to f32 between them. */
function expectClose(actual: Float32Array, expected: ArrayLike<number>): void {
  expect(actual).toHaveLength(expected.length);
  const size = Math.max(1, ...Array.from(expected, Math.abs));
  actual.forEach((y, i) => expect(Math.abs(y - (expected[i] as number))).toBeLessThanOrEqual(size * 128 * 2 ** -24));
}

describe.each(['reference', 'wasm'] as const)('on %s', (name) => {
  test.each(goldenBlocks())('$name: outputs, contributions and active neurons equal those of NumPy', async (block) => {
    const { weights, golden, rows } = block;
    await using program = new FeedForwardBlock({ backend: backends[name], weights, maxTokens: 2 });
    const x = Float32Array.from(rows.flatMap((row) => [...row])); // more tokens than fit one run
    expectClose(await program.forward(x), golden.dense);
    expectClose(await program.contributions(x), golden.contributions);
    const sparse: number[] = [];
    for (const [token, row] of rows.entries()) sparse.push(...(await program.forward(row, golden.active[token])));
    expectClose(Float32Array.from(sparse), golden.sparse);
  });

  test('any subset of neurons, in any order', async () => {
    const activations = fc.constantFrom<ActivationKind>('relu', 'relu2', 'silu', 'gelu-tanh', 'gelu-erf');
    const dims = [fc.integer({ min: 1, max: 9 }), fc.integer({ min: 1, max: 33 })] as const;
    const property = fc.asyncProperty(
      activations,
      fc.boolean(),
      ...dims,
      fc.integer(),
      async (activation, isGated, hiddenDim, ffnDim, seed) => {
        const weights = randomBlock({ activation, isGated, hiddenDim, ffnDim }, seed);
        await using program = new FeedForwardBlock({ backend: backends[name], weights });
        const x = randomRow(hiddenDim, seed + 1);
        const ids = Array.from({ length: ffnDim }, (_, id) => ffnDim - 1 - id);
        expectClose(await program.forward(x), trueOutput(weights, x));
        expectClose((await program.values(x)).values, trueValues(weights, x));
        for (const own of [ids, ids.filter((id) => (id * 7 + seed) % 3 === 0), []]) {
          expectClose(await program.forward(x, own), trueOutput(weights, x, own));
        }
      },
    );
    await fc.assert(property, { numRuns: 20 });
  });
});

describe('errors', () => {
  const weights = randomBlock({ activation: 'relu', isGated: true, hiddenDim: 4, ffnDim: 6 }, 1);
  const block = (own = weights): FeedForwardBlock =>
    new FeedForwardBlock({ backend: backends.reference, weights: own });

  test('mismatched sizes', async () => {
    await using program = block();
    await expect(program.forward(new Float32Array(6))).rejects.toThrow(ShapeError);
    expect(() => block({ ...weights, down: new Float32Array(5) })).toThrow(/elements of down/);
  });

  test.each([[[6]], [[-1]], [[0.5]], [[0, 0, 0, 0, 0, 0, 0]]])('neurons %j', async (ids) => {
    await using program = block();
    await expect(program.forward(new Float32Array(4), ids)).rejects.toThrow(ArgumentError);
  });
});
