/** Codebook and ternary formats: dequantized rows equal those of the codecs. */
import { ProgramBuilder } from '@winnow/ops';
import { createRng, decode, dtypeInfo, sizeOf, type DType } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import { createWasmBackend } from '../src/index.js';

const dtypes: readonly DType[] = ['iq1_s', 'iq1_m', 'iq2_xxs', 'iq2_xs', 'iq2_s', 'iq3_xxs', 'iq3_s', 'tq1_0', 'tq2_0'];
const scaleAt: Readonly<Record<string, number>> = { tq1_0: 52, tq2_0: 64 };
const [numRows, numColumns] = [64, 1024];

/** Random bytes with finite scales, so that every code occurs. */
function randomBlocks(dtype: DType): Uint8Array {
  const rng = createRng(7);
  const bytes = Uint8Array.from({ length: sizeOf(dtype, numRows * numColumns) }, () => rng.nextInt(256));
  const { blockBytes } = dtypeInfo(dtype);
  for (let at = 0; at < bytes.length; at += blockBytes) {
    // the upper bits of the exponent; iq1_m has them in its last scale word
    const high = at + (dtype === 'iq1_m' ? 55 : (scaleAt[dtype] ?? 0) + 1);
    bytes[high] = (bytes[high] as number) & 0xbf;
  }
  return bytes;
}

describe.each([true, false])('relaxed SIMD %s', (relaxedSimd) => {
  test.each(dtypes)('%s', async (dtype) => {
    const backend = await createWasmBackend({ relaxedSimd, numThreads: 2, maxMemoryBytes: 2 ** 25 });
    const b = new ProgramBuilder({});
    const table = b.external('table', 'weights', dtype, [numRows, numColumns]);
    const tokens = b.external('tokens', 'weights', 'i32', [numRows]);
    b.output('rows', b.activation('embedding-lookup', { table, tokens }));
    const bytes = randomBlocks(dtype);
    const buffers = new Map();
    const order = Int32Array.from({ length: numRows }, (_, row) => row);
    for (const [name, contents] of Object.entries({ table: bytes, tokens: new Uint8Array(order.buffer) })) {
      const handle = backend.allocate({ sizeBytes: contents.length, usage: 'weights', label: name });
      await backend.write(handle, 0, contents);
      buffers.set(name, handle);
    }
    const executable = await backend.prepare(b.build(), { buffers, onUnsupported: 'error' });
    await executable.run(new Int32Array(0));
    const rows = new Float32Array(numRows * numColumns);
    await executable.read('rows', rows);
    const expected = new Float32Array(rows.length);
    decode(dtype, bytes, expected);
    expect(expected.every(Number.isFinite)).toBe(true);
    // the sign of zero is ignored
    expect(rows.map((value) => value + 0)).toEqual(expected.map((value) => value + 0));
    await backend.dispose();
  });
});
