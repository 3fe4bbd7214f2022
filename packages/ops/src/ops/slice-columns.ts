import { ArgumentError } from '@winnow/tensor';
import { f32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';
import { countRows } from './rms-norm.js';

/**
 * Columns `[begin, begin + length)` of every row: `y[..., i] = x[..., begin + i]`, with `pads` 0 for columns before the row
 * (`begin` may be negative) and beyond it.
 *
 * Shapes: x `[..., I]`, y `[..., L]` f32 with L = `length`. Ranges of a weight's rows need no copy: see `rows` of the
 * program builder.
 */
export const sliceColumns: OpSpec = {
  name: 'slice-columns',
  inputs: { x: { dtypes: f32Only, shape: '... I' } },
  outputs: { y: { dtypes: f32Only, shape: '... L' } },
  axes: { I: 'numInputs', L: 'length' },
  attributes: {
    begin: { kind: 'number', integer: true },
    length: { kind: 'number', integer: true },
    pads: { kind: 'boolean', default: false },
  },
  attributeDims: { L: 'length' },
  fixedAxes: ['I'],
  partition: 'tokens',
  check({ x }, { begin, length, pads }) {
    const rowLength = Number(x[x.length - 1]);
    const end = Number(begin) + (pads === true ? 0 : Number(length));
    if ((pads !== true && Number(begin) < 0) || Number(length) < 0 || end > rowLength) {
      throw new ArgumentError({
        argument: 'slice-columns: begin, length',
        expected: `a range within ${rowLength} columns`,
        actual: `${String(begin)}, ${String(length)}`,
      });
    }
  },
  bindReference({ inputs: { x }, outputs: { y }, attributes }) {
    const begin = attributes['begin'] as number;
    const length = attributes['length'] as number;
    const rowLength = x.shape[x.shape.length - 1];
    return () => {
      const numRows = countRows(x.shape);
      for (let row = 0; row < numRows; row++) {
        for (let i = 0; i < length; i++) {
          const column = begin + i;
          y.data[row * length + i] = column >= 0 && column < rowLength ? x.data[row * rowLength + column] : 0;
        }
      }
    };
  },
  flops: () => 0,
  bytes: ({ y }) => 8 * y.reduce((product, dim) => product * dim, 1),
};
