import { memorySource } from '@winnow/bytes';
import { FormatError } from '@winnow/tensor';
import { beforeAll, describe, expect, it } from 'vitest';
import { ggufBytes, sampleModel } from '../test/support.js';
import { openGguf, type GgufMetadata } from './index.js';

let metadata: GgufMetadata;
beforeAll(async () => {
  ({ metadata } = await openGguf(memorySource(await ggufBytes(sampleModel()), 'sample')));
});

const getters = {
  getString: 'a string',
  getBoolean: 'a boolean',
  getNumber: 'a number',
  getInteger: 'an integer',
  getBigInt: 'an integer',
  getArray: 'an array',
  getStrings: 'an array of strings',
  getBooleans: 'an array of booleans',
  getNumbers: 'an array of numbers',
} as const;
const accepted: Record<keyof typeof getters, string[]> = {
  getString: ['general.architecture'],
  getBoolean: ['a.bool'],
  getNumber: ['a.uint8', 'a.uint64', 'a.float32', 'a.float64'],
  getInteger: ['a.uint8', 'a.uint64'],
  getBigInt: ['a.uint8', 'a.uint64', 'a.int64'],
  getArray: ['a.strings', 'a.floats', 'a.bools', 'a.longs', 'a.nested'],
  getStrings: ['a.strings'],
  getBooleans: ['a.bools'],
  getNumbers: ['a.floats'],
};

describe('GgufMetadata', () => {
  it('returns values by type', () => {
    expect(metadata.getString('general.architecture')).toBe('llama');
    expect(metadata.getBoolean('a.bool')).toBe(true);
    expect(metadata.getNumber('a.uint8')).toBe(255);
    expect(metadata.getNumber('a.float32')).toBe(0.5);
    expect(metadata.getNumber('a.float64')).toBe(Math.PI);
    expect(metadata.getInteger('a.uint8')).toBe(255);
    expect(metadata.getInteger('a.uint64')).toBe(7);
    expect(metadata.getBigInt('a.uint64')).toBe(7n);
    expect(metadata.getBigInt('a.int64')).toBe(-(2n ** 60n));
    expect(metadata.getStrings('a.strings')).toEqual(['a', '', 'ünï', '\u{1f600}']);
    expect(metadata.getNumbers('a.floats')).toEqual(Float32Array.of(1, -2, 0.25));
    expect(metadata.getBooleans('a.bools')).toEqual([true, false]);
    expect(metadata.getArray('a.nested').elementType).toBe('array');
    expect(metadata.get('a.longs')).toEqual({ type: 'array', elementType: 'uint64', value: [1, 2n ** 64n - 1n] });
    expect(metadata.get('missing')).toBeUndefined();
  });

  it('lists its keys in the order of the file', () => {
    expect(metadata.size).toBe(12);
    expect([...metadata.keys()].slice(0, 2)).toEqual(['general.architecture', 'a.bool']);
    expect([...metadata][1]).toEqual(['a.bool', { type: 'bool', value: true }]);
    expect(metadata.has('a.bool')).toBe(true);
    expect(metadata.has('a')).toBe(false);
  });

  it('returns the fallback for a missing key only', () => {
    expect(metadata.getNumber('x', 5)).toBe(5);
    expect(metadata.getString('x', undefined)).toBeUndefined();
    expect(metadata.getInteger('a.uint8', 5)).toBe(255);
    expect(() => metadata.getString('a.bool', 'x')).toThrow(FormatError);
  });
});

describe('values of other types', () => {
  it.each(Object.keys(getters) as (keyof typeof getters)[])(
    '%s rejects every other type and a missing key',
    (getter) => {
      for (const key of metadata.keys()) {
        const get = (): unknown => metadata[getter](key);
        if (accepted[getter].includes(key)) expect(get).not.toThrow();
        else if (getter === 'getNumbers' && key === 'a.longs') {
          expect(get).toThrow(/expected integers of at most 2\^53 - 1, got array of uint64/);
        } else
          expect(get).toThrow(
            new RegExp(`sample at byte \\d+: metadata\\["${key}"\\]: expected ${getters[getter]}, got`),
          );
      }
      expect(() => metadata[getter]('x')).toThrow('sample: metadata["x"]: expected this key, but it is missing');
    },
  );

  it('are reported with their offset', () => {
    // magic, version, two counts, the key with its length, the type
    expect(metadata.error('general.architecture', 'bad').byteOffset).toBe(24 + 8 + 20 + 4);
    expect(() => metadata.getNumber('general.architecture')).toThrow(
      'sample at byte 56: metadata["general.architecture"]: expected a number, got string',
    );
  });
});
