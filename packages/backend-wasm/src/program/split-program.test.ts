import { ProgramBuilder, type Program, type ProgramTensor } from '@winnow/ops';
import { expect, test } from 'vitest';
import { splitProgram, type SplitProgram } from './split-program.js';

/** Assigns buffers to memories by the last letter of their names. */
function split(program: Program, smallBytes = 0): SplitProgram<string> {
  const homeOf = (buffer: number): string => program.buffers[buffer]?.name.at(-1) ?? '';
  return splitProgram(program, homeOf, '', smallBytes);
}

const width = 16;
const tensorBytes = 4 * 8 * width;

function builder(): { b: ProgramBuilder; matmul: (x: ProgramTensor, name: string) => ProgramTensor } {
  const b = new ProgramBuilder({ T: 8 });
  return {
    b,
    matmul: (x, name) => b.activation('matmul', { x, weight: b.external(name, 'weights', 'f32', [width, width]) }),
  };
}

function input(b: ProgramBuilder, name: string): ProgramTensor {
  const table = b.external(name, 'weights', 'f32', [4, width]);
  return b.activation('embedding-lookup', { table, tokens: b.scalar(`tokens of ${name}`, ['T']) });
}

/** Stages as `memory: records, bytes copied`. */
function stagesOf({ parts, stages }: SplitProgram<string>): string[] {
  return stages.map(({ part, begin, end, copies }) => {
    const records = parts[part]?.records.slice(begin, end).join(' ');
    const copied = copies.map((copy) => `${copy.begin}-${copy.end} of ${parts[copy.from]?.memory}`);
    return [`${parts[part]?.memory}: ${records}`, ...copied].join(', ');
  });
}

test('one memory: the program itself', () => {
  const { b, matmul } = builder();
  b.output('y', matmul(input(b, 'table a'), 'weight a'));
  const program = b.build();
  const { parts, stages } = split(program);
  expect(parts.map((part) => part.program)).toEqual([program]);
  expect(parts[0]?.program).toBe(program);
  expect(stages).toEqual([{ ...program.segments[0], part: 0, copies: [] }]);
});

test('inputs of a stage are copied once, dead tensors are not', () => {
  const { b, matmul } = builder();
  const x = input(b, 'table a');
  const y = matmul(x, 'first b'); // x goes to b
  const z = matmul(b.activation('add', { a: x, b: y }), 'second b'); // x is already there
  b.output('z', matmul(z, 'last a')); // only z is copied back
  const found = split(b.build());
  expect(stagesOf(found)).toEqual([
    'a: 0',
    `b: 1 2 3, 0-${tensorBytes} of a`,
    expect.stringMatching(new RegExp(`^a: 4, \\d+-\\d+ of b$`)),
  ]);
  expect(found.outputs).toEqual(new Map([['z', 0]]));
  expect(found.lastCopies).toEqual([]);
});

test('a recomputed value is copied again', () => {
  const { b, matmul } = builder();
  let x = input(b, 'table a');
  for (let round = 0; round < 3; round++) x = matmul(matmul(x, `weight ${round} b`), `weight ${round} a`);
  b.output('x', x);
  const found = split(b.build());
  expect(found.stages.map(({ copies }) => copies.length)).toEqual([0, 1, 1, 1, 1, 1, 1]);
});

test('records with small weights or none stay in the memory of the previous record', () => {
  const { b, matmul } = builder();
  const norm = b.external('norm a', 'weights', 'f32', [width]);
  const x = matmul(input(b, 'table a'), 'weight b');
  b.output('y', matmul(b.activation('rms-norm', { x, weight: norm }, { eps: 1e-5 }), 'last b'));
  expect(stagesOf(split(b.build(), 4 * width)).map((stage) => stage.slice(0, 8))).toEqual(
    ['a: 0', 'b: 1 2 3'].map((stage) => expect.stringContaining(stage)),
  );
  expect(split(b.build()).stages).toHaveLength(4);
});

test('an op runs where most of its bytes are', () => {
  const { b } = builder();
  const few = b.external('few a', 'kv', 'f32', [2, width]);
  const many = b.external('many b', 'kv', 'f32', [3, width]);
  b.output('y', b.activation('matmul', { x: few, weight: many }));
  expect(stagesOf(split(b.build()))).toEqual(['b: 0']);
});

test('boundaries end stages, even empty ones', () => {
  const { b, matmul } = builder();
  b.boundary('first');
  const x = input(b, 'table a');
  b.boundary('second');
  b.output('y', matmul(matmul(x, 'weight a'), 'weight b'));
  b.boundary('last');
  const { stages } = split(b.build());
  expect(stages.map(({ boundary }) => boundary)).toEqual(['first', 'second', undefined, 'last', undefined]);
});

test('outputs of several memories', () => {
  const { b, matmul } = builder();
  const x = input(b, 'table a');
  b.output('x', x);
  b.output('y', matmul(x, 'weight b'));
  const { outputs, lastCopies } = split(b.build());
  expect([...outputs]).toEqual([
    ['x', 0],
    ['y', 1],
  ]);
  expect(lastCopies).toEqual([]);
});
