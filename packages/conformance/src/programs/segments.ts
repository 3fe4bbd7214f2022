/** Programs with boundaries: the next segment reads what the host writes there. */
import { ProgramBuilder } from '@winnow/ops';
import { exact } from '../values.js';
import type { ProgramCase } from './program-case.js';

const bytesOf = (values: readonly number[]): Uint8Array => new Uint8Array(Float32Array.from(values).buffer);

/** Three segments; the host writes other rows to the same buffer before the second and the third. */
const pages: ProgramCase = {
  name: 'pages written by the host between segments',
  create() {
    const b = new ProgramBuilder({ T: 2 });
    const page = b.external('page', 'kv', 'f32', [2, 3]);
    const rows = b.scalar('rows', ['T']);
    const first = b.activation('gather-rows', { x: page, rows });
    b.boundary('page 1');
    const second = b.activation('add', { a: b.activation('gather-rows', { x: page, rows }), b: first });
    b.boundary('page 2');
    b.output('sum', b.activation('add', { a: b.activation('gather-rows', { x: page, rows }), b: second }));
    b.output('first', first);
    const contents = new Map([['page', bytesOf([1, 2, 3, 4, 5, 6])]]);
    const boundaries = {
      'page 1': { page: bytesOf([10, 20, 30, 40, 50, 60]) },
      'page 2': { page: bytesOf([100, 200, 300, 400, 500, 600]) },
    };
    return {
      program: b.build(),
      contents,
      steps: [
        {
          scalars: { T: [2], rows: [1, 0] },
          boundaries,
          expected: { first: exact([4, 5, 6, 1, 2, 3]), sum: exact([444, 555, 666, 111, 222, 333]) },
        },
        {
          // the buffer still holds the last page; boundaries without a listener change nothing
          scalars: { T: [1], rows: [1] },
          expected: { first: exact([400, 500, 600]), sum: exact([1200, 1500, 1800]) },
        },
      ],
    };
  },
};

/** Boundaries before the first record, twice at one place, and after the last. */
const edges: ProgramCase = {
  name: 'boundaries at the edges',
  create() {
    const b = new ProgramBuilder({});
    const x = b.external('x', 'kv', 'f32', [1, 2]);
    b.boundary('before');
    const y = b.activation('gather-rows', { x, rows: b.scalar('rows', [1]) });
    b.boundary('middle');
    b.boundary('again');
    b.output('y', b.activation('add', { a: y, b: x }));
    b.boundary('after');
    return {
      program: b.build(),
      contents: new Map([['x', bytesOf([0, 0])]]),
      steps: [
        {
          scalars: { rows: [0] },
          boundaries: {
            before: { x: bytesOf([1, 2]) },
            middle: { x: bytesOf([7, 7]) },
            again: { x: bytesOf([30, 40]) },
            after: { x: bytesOf([9, 9]) },
          },
          expected: { y: exact([31, 42]) },
        },
      ],
    };
  },
};

export const segmentCases: readonly ProgramCase[] = [pages, edges];
