import { ArgumentError, DTypeError, ShapeError, type DType } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { opSpec, opSpecs } from '../ops/registry.js';
import type { Dim } from './dims.js';
import { inferOp, type TensorType } from './infer-op.js';
import type { Attributes } from './op-spec.js';

const f32 = (...shape: Dim[]): TensorType => ({ dtype: 'f32', shape });
const i32 = (...shape: Dim[]): TensorType => ({ dtype: 'i32', shape });
const infer = (
  op: string,
  inputs: Record<string, TensorType>,
  attributes: Attributes = {},
  updated: Record<string, TensorType> = {},
): ReturnType<typeof inferOp> => inferOp(opSpec(op), inputs, attributes, updated);

const cache = {
  keys: f32(9, 2, 16, 64),
  values: f32(9, 2, 16, 32),
  slotPositions: i32(9, 16),
  blockTable: i32('B', 4),
  contextLengths: i32('B'),
};
const queries = { q: f32('T', 6, 64), positions: i32('T'), sequences: i32('T') };

const rejected: [string, () => unknown, new (...args: never[]) => Error, string][] = [
  ['a missing input', () => infer('add', { a: f32(2) }), ArgumentError, 'add: input b: expected a tensor, got nothing'],
  ['an unknown input', () => infer('softmax', { x: f32(2), z: f32(2) }), ArgumentError, 'expected x, got z'],
  ['an inherited name', () => infer('softmax', { x: f32(2), toString: f32(2) }), ArgumentError, 'got toString'],
  ['a wrong dtype', () => infer('softmax', { x: i32(2) }), DTypeError, 'softmax: x: dtype, expected f32, got i32'],
  ['i8 weights', () => infer('matmul', { x: f32(1, 4), weight: { dtype: 'i8', shape: [4, 4] } }), DTypeError, 'i8'],
  ['other sizes', () => infer('add', { a: f32(2, 'T'), b: f32(2, 'R') }), ShapeError, '... = 2,T'],
  ['a wrong width', () => infer('matmul', { x: f32('T', 8), weight: f32(3, 9) }), ShapeError, 'I = 8'],
  ['an unknown attribute', () => infer('softmax', { x: f32(2) }, { axis: 0 }), ArgumentError, 'none, got axis'],
  ['a missing attribute', () => infer('rms-norm', { x: f32(2), weight: f32(2) }), ArgumentError, 'eps'],
  ['an attribute of another kind', () => infer('soft-cap', { x: f32(2) }, { cap: '3' }), ArgumentError, 'a number'],
  ['NaN', () => infer('soft-cap', { x: f32(2) }, { cap: NaN }), ArgumentError, 'a finite number'],
  ['a number beyond f32', () => infer('soft-cap', { x: f32(2) }, { cap: 1e39 }), ArgumentError, 'a finite number'],
  ['half a part', () => infer('top-k', { x: f32(1, 9) }, { k: 1.5 }), ArgumentError, 'a 32-bit integer'],
  ['an integer beyond 32 bits', () => infer('top-k', { x: f32(1, 9) }, { k: 2 ** 32 + 1 }), ArgumentError, '32-bit'],
  ['an unknown string', () => infer('activation', { x: f32(2) }, { kind: 'mish' }), ArgumentError, 'got mish'],
  ['a cap of 0', () => infer('soft-cap', { x: f32(2) }, { cap: 0 }), ArgumentError, 'a positive number'],
  ['k above the width', () => infer('top-k', { x: f32(1, 9) }, { k: 10 }), ArgumentError, '1 to 9'],
  ['k of 0', () => infer('top-k', { x: f32(1, 9) }, { k: 0 }), ArgumentError, '1 to 9'],
  ['a symbol where kernels need a number', () => infer('top-k', { x: f32(1, 'V') }, { k: 1 }), ShapeError, 'symbol V'],
  [
    'symbolic heads',
    () => infer('rope', { x: f32('T', 'N', 4), positions: i32('T'), frequencies: f32(2) }, { layout: 'halves' }),
    ShapeError,
    'axis N',
  ],
  [
    'too many pairs',
    () => infer('rope', { x: f32('T', 1, 6), positions: i32('T'), frequencies: f32(4) }, { layout: 'halves' }),
    ArgumentError,
    'at most 3 pairs',
  ],
  [
    'heads that do not divide',
    () => infer('attention', { ...queries, q: f32('T', 5, 64), ...cache }, { scale: 1 }),
    ShapeError,
    'a multiple of 2 KV heads',
  ],
  [
    'a negative window',
    () => infer('attention', { ...queries, ...cache }, { scale: 1, window: -1 }),
    ArgumentError,
    'window',
  ],
  [
    'a negative cap',
    () => infer('attention', { ...queries, ...cache }, { scale: 1, softCap: -1 }),
    ArgumentError,
    'softCap',
  ],
  [
    'chunks in an op without them',
    () => infer('oracle-topk-attention', { ...queries, ...cache }, { scale: 1, k: 4, window: 8, chunked: true }),
    ArgumentError,
    'false, since only attention, attention-partial, attention-mass support it',
  ],
  [
    'chunks of no size',
    () => infer('attention', { ...queries, ...cache }, { scale: 1, chunked: true }),
    ArgumentError,
    'expected a window, the size of a chunk',
  ],
  [
    'chunks in bidirectional attention',
    () => infer('attention', { ...queries, ...cache }, { scale: 1, window: 8, chunked: true, causal: false }),
    ArgumentError,
    'expected causal attention',
  ],
  [
    'no parts',
    () => infer('attention-partial', { ...queries, ...cache }, { scale: 1, numParts: 0 }),
    ArgumentError,
    'numParts',
  ],
  [
    'half a second state',
    () => infer('attention-merge', { m: f32(2, 'T', 1), l: f32(2, 'T', 1), o: f32(2, 'T', 1, 4), m2: f32(2, 'T', 1) }),
    ArgumentError,
    'all or none, got 1',
  ],
  [
    'no tensor to update',
    () => infer('position-append', { slots: i32('T'), positions: i32('T') }),
    ArgumentError,
    'the tensor to update',
  ],
  ['a tensor for an own output', () => infer('softmax', { x: f32(2) }, {}, { y: f32(2) }), ArgumentError, 'no tensor'],
  ['an unknown output', () => infer('softmax', { x: f32(2) }, {}, { z: f32(2) }), ArgumentError, 'expected y, got z'],
  [
    'an i8 cache',
    () =>
      infer(
        'kv-append',
        { k: f32('T', 2, 4), v: f32('T', 2, 4), slots: i32('T') },
        {},
        { keys: { dtype: 'i8', shape: [1, 2, 3, 4] }, values: f32(1, 2, 3, 4) },
      ),
    DTypeError,
    'i8',
  ],
  [
    'a cache of other heads',
    () =>
      infer(
        'kv-append',
        { k: f32('T', 2, 4), v: f32('T', 2, 4), slots: i32('T') },
        {},
        { keys: f32(1, 3, 3, 4), values: f32(1, 2, 3, 4) },
      ),
    ShapeError,
    'K = 2',
  ],
];

/** Every op that addresses cache blocks, with its axes as numbers. */
const ofBlocks = opSpecs.filter(({ inputs, outputs }) => (inputs['keys'] ?? outputs['keys'])?.shape === 'C K S H');

describe('inferOp', () => {
  it('infers dtypes and shapes of outputs', () => {
    expect(infer('matmul', { x: f32('T', 64), weight: { dtype: 'q4_K', shape: [7, 64] } }).outputs).toEqual({
      y: f32('T', 7),
    });
    expect(infer('top-k', { x: f32('R', 100) }, { k: 5 }).outputs).toEqual({
      values: f32('R', 5),
      indices: i32('R', 5),
    });
    expect(infer('attention', { ...queries, ...cache }, { scale: 1 }).outputs).toEqual({ y: f32('T', 6, 32) });
    const streaming = { scale: 1, local: 9 };
    const own = { y: f32('T', 6, 32), pairs: i32('T') };
    expect(infer('streaming-attention', { ...queries, ...cache }, streaming).outputs).toEqual(own);
    expect(infer('streaming-attention', { ...queries, ...cache }, { ...streaming, mass: true }).outputs).toEqual({
      ...own,
      mass: f32('T', 2, 4, 16), // only if requested
    });
    expect(infer('attention-partial', { ...queries, ...cache }, { scale: 1, numParts: 3 }).outputs).toEqual({
      m: f32(3, 'T', 6),
      l: f32(3, 'T', 6),
      o: f32(3, 'T', 6, 32),
    });
  });

  it('adds defaults and rounds numbers to f32', () => {
    const { attributes } = infer('attention', { ...queries, ...cache }, { scale: 0.1 });
    expect(attributes).toEqual({ scale: Math.fround(0.1), causal: true, window: 0, softCap: 0, chunked: false });
  });

  it.each(rejected)('rejects %s', (_name, act, error, message) => {
    expect(act).toThrow(error);
    expect(act).toThrow(message);
  });

  it.each(ofBlocks.map((spec) => [spec.name, spec] as const))('%s rejects blocks without slots', (_name, spec) => {
    const sizes: Readonly<Record<string, number>> = { N: 2, K: 2, S: 0, M: 2, E: 4 };
    const typeOf = ({ dtypes: [dtype = 'f32'], shape }: { dtypes: readonly DType[]; shape: string }): TensorType => ({
      dtype,
      shape: shape.split(' ').map((axis) => (/^\d+$/v.test(axis) ? Number(axis) : (sizes[axis] ?? 1))),
    });
    const inputs = Object.entries(spec.inputs).map(([name, input]) => [name, typeOf(input)]);
    const updated = Object.entries(spec.outputs).filter(([, { updates }]) => updates === true);
    const numbers = Object.entries(spec.attributes).filter(([, { kind }]) => kind === 'number');
    const infers = (): unknown =>
      infer(
        spec.name,
        Object.fromEntries(inputs),
        Object.fromEntries(numbers.map(([name]) => [name, 1])),
        Object.fromEntries(updated.map(([name, output]) => [name, typeOf(output)])),
      );
    expect(infers).toThrow(ShapeError);
    expect(infers).toThrow(/slots per block.*1 or more.*0/v);
  });

  it('exist', () => expect(ofBlocks.length).toBeGreaterThan(10));
});

describe('specs', () => {
  it.each(opSpecs.map((spec) => [spec.name, spec] as const))('%s is consistent', (_name, spec) => {
    const letters = new Set(
      [...Object.values(spec.inputs), ...Object.values(spec.outputs)].flatMap(({ shape }) => shape.split(' ')),
    );
    for (const letter of spec.fixedAxes ?? []) expect(letters).toContain(letter);
    for (const [letter, attribute] of Object.entries(spec.attributeDims ?? {})) {
      expect(letters).toContain(letter);
      expect(spec.attributes[attribute]?.integer).toBe(true);
    }
    for (const output of Object.values(spec.outputs)) {
      if (output.mayAlias !== undefined) expect(spec.inputs[output.mayAlias]?.shape).toBe(output.shape);
      if (output.updates !== true) expect(output.dtypes).toHaveLength(1);
      if (output.when !== undefined) expect(spec.attributes[output.when]?.kind).toBe('boolean');
    }
    for (const name of Object.keys(spec.outputs)) {
      if (spec.name !== 'attention-merge') expect(spec.inputs[name]).toBeUndefined();
    }
  });
});
