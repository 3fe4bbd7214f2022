import { ProgramBuilder, type ProgramTensor } from '@winnow/ops';
import { expect, test } from 'vitest';
import { planFlags } from '../kernels/layout.generated.js';
import { repackableTensors } from '../memory/repacking.js';
import { aheadOf } from './free-records.js';
import { planProgram } from './plan.js';

/** Indices of the matmuls that need no barrier before them. */
function freeProducts(build: (b: ProgramBuilder, matmul: (x: ProgramTensor) => ProgramTensor) => void): boolean[] {
  const b = new ProgramBuilder({ T: 8 });
  let count = 0;
  build(b, (x) => {
    const weight = b.external(`w${count++}`, 'weights', 'q8_0', [64, 64]);
    return b.activation('matmul', { x, weight });
  });
  const program = b.build();
  const { records } = planProgram(program, repackableTensors(program, new Set()), true);
  return records
    .filter((_, index) => program.records[index]?.op === 'matmul')
    .map(({ flags }) => (flags & planFlags.independent) !== 0);
}

function input(b: ProgramBuilder): ProgramTensor {
  const table = b.external('table', 'weights', 'f32', [4, 64]);
  return b.activation('embedding-lookup', { table, tokens: b.scalar('tokens', ['T']) });
}

test('matmuls of the same activations run without a barrier, at most eight in a row', () => {
  const free = freeProducts((b, matmul) => {
    const x = input(b);
    for (let i = 0; i < 10; i++) b.output(`y${i}`, matmul(x));
  });
  expect(free).toEqual([false, true, true, true, true, true, true, true, false, true]);
});

test('a matmul of the previous result waits for it', () => {
  const free = freeProducts((b, matmul) => {
    const x = input(b);
    const y = matmul(x);
    b.output('z', matmul(y));
    b.output('y', y);
  });
  expect(free).toEqual([false, false]);
});

test('matmuls of few activations run without a barrier, whatever they read', () => {
  const free = (numTokens: number, width: number): boolean[] => {
    const b = new ProgramBuilder({});
    const x = ['a', 'b'].map((name) => b.external(name, 'kv', 'f32', [numTokens, width]));
    for (const [i, a] of x.entries()) {
      const weight = b.external(`w${i}`, 'weights', 'q8_0', [64, width]);
      b.output(`y${i}`, b.activation('matmul', { x: a, weight }));
    }
    const program = b.build();
    const repackable = repackableTensors(program, new Set());
    return planProgram(program, repackable, true).records.map(({ flags }) => (flags & planFlags.independent) !== 0);
  };
  expect(free(1, 512)).toEqual([false, true]);
  expect(free(2, 256)).toEqual([false, true]);
  expect(free(1, 544)).toEqual([false, false]);
  expect(free(4, 64)).toEqual([false, false]);
});

test('a matmul that reuses the memory of another waits for it', () => {
  const free = freeProducts((b, matmul) => {
    const x = input(b);
    matmul(x); // it has no reader, so the next matmul can reuse its memory
    b.output('y', matmul(x));
  });
  expect(free).toEqual([false, false]);
});

test('records point to the next matmul with repacked weights, including themselves', () => {
  const b = new ProgramBuilder({ T: 8 });
  const weight = b.external('w', 'weights', 'q8_0', [64, 64]);
  const y = b.activation('matmul', { x: input(b), weight });
  b.output('y', b.activation('add', { a: y, b: y }));
  const program = b.build();
  const { records } = planProgram(program, repackableTensors(program, new Set()), true);
  expect(program.records.map(({ op }) => op)).toEqual(['embedding-lookup', 'matmul', 'add']);
  expect(records.map((_, index) => aheadOf(program, records, index))).toEqual([2, 1, 0]);
});

test('nothing is prefetched before an op that reads many weights', () => {
  const b = new ProgramBuilder({ T: 8 });
  const x = input(b);
  const first = b.activation('add', { a: x, b: x });
  const weight = b.external('neurons', 'weights', 'q8_0', [32, 3, 64]);
  const rows = b.external('rows', 'kv', 'i32', [32]);
  const count = b.external('count', 'kv', 'i32', [1]);
  const y = b.activation('sparse-feed-forward', { x: first, weight, rows, count }, { kind: 'silu' });
  b.output('y', b.activation('matmul', { x: y, weight: b.external('w', 'weights', 'q8_0', [64, 64]) }));
  const program = b.build();
  const repackable = repackableTensors(program, new Set());
  const { records } = planProgram(program, repackable, true);
  expect(program.records.map(({ op }) => op)).toEqual(['embedding-lookup', 'add', 'sparse-feed-forward', 'matmul']);
  expect(records.map((_, index) => aheadOf(program, records, index))).toEqual([0, 0, 2, 1]);
});
