import type { KernelCase } from '../kernel-case.js';
import { numStateRows, stateSetups, stateTensors, tokenRanges, type StateSetup } from '../setups/state-setups.js';
import { exact, gaussian, ints, numbersOf } from '../values.js';

function carryCase(setup: StateSetup, dtype: 'f32' | 'i32', numHeads: number, length: number): KernelCase {
  return {
    op: 'state-carry',
    name: `${setup.name}, ${dtype}, ${numHeads} x ${length}`,
    dtypes: { state: dtype },
    attributes: {},
    create(rng) {
      const shape = [numStateRows, numHeads, length];
      const rowLength = numHeads * length;
      const numbers = Int32Array.from({ length: numStateRows * rowLength }, () => rng.nextInt(1000) - 500);
      const state = dtype === 'i32' ? ints(shape, numbers) : gaussian(rng, shape);
      const before = numbersOf(state);
      const after = before.slice();
      for (const { from, to } of tokenRanges(setup)) {
        const row = from < 0 ? new Float64Array(rowLength) : before.subarray(from * rowLength, (from + 1) * rowLength);
        after.set(row, to * rowLength);
      }
      return {
        inputs: stateTensors(setup),
        updated: { state },
        expected: { state: dtype === 'f32' ? exact(after) : { kind: 'bytes', bytes: ints(shape, after).bytes } },
      };
    },
  };
}

export const stateCarryCases: readonly KernelCase[] = stateSetups.flatMap((setup) => [
  carryCase(setup, 'f32', 2, 7),
  carryCase(setup, 'i32', 3, 2),
]);
