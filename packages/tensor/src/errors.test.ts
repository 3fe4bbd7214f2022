import { expect, test } from 'vitest';
import {
  ArgumentError,
  BackendError,
  CapacityError,
  DeviceLostError,
  DTypeError,
  FormatError,
  invariant,
  IoError,
  ReleasedError,
  ShapeError,
  UnsupportedOpError,
  WinnowError,
} from './errors.js';

const cause = new Error('below');
const cases: readonly [WinnowError, string, string, string][] = [
  [
    new ShapeError({ op: 'matmul', rule: 'inner dimension', expected: '4', actual: '5' }),
    'ShapeError',
    'shape',
    'matmul: inner dimension, expected 4, got 5',
  ],
  [
    new DTypeError({ op: 'encode', expected: 'f32', actual: 'q8_K' }),
    'DTypeError',
    'dtype',
    'encode: dtype, expected f32, got q8_K',
  ],
  [
    new UnsupportedOpError({ op: 'rope', backend: 'wasm', reason: 'no kernel' }),
    'UnsupportedOpError',
    'unsupported-op',
    'rope: not supported by backend wasm: no kernel',
  ],
  [
    new CapacityError({ resource: 'cache', needed: 3, available: 2, unit: 'pages', hint: 'evict' }),
    'CapacityError',
    'capacity',
    'cache: needed 3 pages, available 2 pages (evict)',
  ],
  [
    new FormatError({ source: 'a.gguf', byteOffset: 4, field: 'version', message: 'is 9' }, { cause }),
    'FormatError',
    'format',
    'a.gguf at byte 4: version: is 9',
  ],
  [
    new FormatError({ source: 'a.gguf', field: 'version', message: 'is 9' }),
    'FormatError',
    'format',
    'a.gguf: version: is 9',
  ],
  [new ReleasedError('tensor'), 'ReleasedError', 'released', 'tensor: used after it was released'],
  [new BackendError({ backend: 'gpu', message: 'busy', nativeCode: 7 }), 'BackendError', 'backend', 'gpu: busy'],
  [
    new DeviceLostError({ backend: 'gpu', reason: 'driver reset' }, { cause }),
    'DeviceLostError',
    'device-lost',
    'gpu: device lost: driver reset',
  ],
  [
    new ArgumentError({ argument: 'seed', expected: 'an integer', actual: '0.5', hint: 'round it' }),
    'ArgumentError',
    'argument',
    'seed: expected an integer, got 0.5 (round it)',
  ],
  [
    new IoError({ source: 'a.gguf', byteOffset: 0, message: 'short read' }),
    'IoError',
    'io',
    'a.gguf at byte 0: short read',
  ],
];

test.each(cases)('%s', (error, name, code, message) => {
  expect(error).toBeInstanceOf(WinnowError);
  expect(WinnowError.isInstance(error)).toBe(true);
  expect([error.name, error.code, error.message]).toEqual([name, code, message]);
});

test('a cause is kept', () => {
  expect(cases[4][0].cause).toBe(cause);
});

test('errors of another copy of the package are recognized, other values are not', () => {
  const foreign = Object.assign(new Error('x'), { [Symbol.for('winnow.error')]: true });
  expect(WinnowError.isInstance(foreign)).toBe(true);
  for (const value of [new Error('x'), null, undefined, { code: 'shape' }, { [Symbol.for('winnow.error')]: true }]) {
    expect(WinnowError.isInstance(value)).toBe(false);
  }
});

test('invariant', () => {
  expect(() => invariant(true, 'fine')).not.toThrow();
  expect(() => invariant(0, 'broken')).toThrow('Winnow internal error: broken');
});

test('isInstance distinguishes families and recognizes errors of another copy of the package', () => {
  const error = new FormatError({ source: 'm', field: 'f', message: 'x' });
  expect(FormatError.isInstance(error)).toBe(true);
  expect(ShapeError.isInstance(error)).toBe(false); // of another family
  expect(WinnowError.isInstance(error)).toBe(true);
  expect(FormatError.isInstance(new Error('x'))).toBe(false);
  const foreign = Object.defineProperty(new Error('x'), Symbol.for('winnow.error'), { value: true });
  expect(FormatError.isInstance(Object.assign(foreign, { code: 'format' }))).toBe(true);
});
