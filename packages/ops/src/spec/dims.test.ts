import { ShapeError } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { matchShape, maxElements, shapeOf, type Bindings } from './dims.js';

function bind(contract: string, shape: readonly (number | string)[], bindings: Bindings = new Map()): Bindings {
  matchShape('op', 'x', contract, shape, bindings);
  return bindings;
}

describe('matchShape', () => {
  it('binds each letter once', () => {
    const bindings = bind('T N H', ['T', 4, 64]);
    expect([...bindings]).toEqual([
      ['T', 'T'],
      ['N', 4],
      ['H', 64],
    ]);
    bind('H', [64], bindings);
    expect(() => bind('H', [32], bindings)).toThrow(ShapeError);
    expect(() => bind('H', [32], bindings)).toThrow('op: shape of x, expected [H] with H = 64, got [32]');
  });

  it('distinguishes symbols from numbers and from other symbols', () => {
    expect(() => bind('A A', ['T', 7])).toThrow(ShapeError);
    expect(() => bind('A A', ['T', 'R'])).toThrow(ShapeError);
    expect(() => bind('A A', ['T', 'T'])).not.toThrow();
  });

  it('rejects another rank', () => {
    expect(() => bind('T E', [1, 2, 3])).toThrow(ShapeError);
    expect(() => bind('T E', [1])).toThrow(ShapeError);
    expect(() => bind('', [1])).toThrow(ShapeError);
    expect(() => bind('', [])).not.toThrow();
  });

  it('binds any number of leading axes consistently', () => {
    const bindings = bind('... H', ['T', 3, 8]);
    bind('...', ['T', 3], bindings);
    bind('... H', ['T', 3, 8], bindings);
    expect(() => bind('...', ['T', 4], bindings)).toThrow(ShapeError);
    expect(() => bind('...', ['T'], bindings)).toThrow(ShapeError);
    expect(() => bind('... A B', [1])).toThrow(ShapeError);
    expect(bind('... H', [8]).get('...')).toEqual([]);
  });

  it('matches digits literally', () => {
    expect(() => bind('1 T', [1, 5])).not.toThrow();
    expect(() => bind('1 T', [2, 5])).toThrow(ShapeError);
    expect(() => bind('1 T', ['T', 5])).toThrow(ShapeError);
  });
});

describe('shapeOf', () => {
  it('combines letters, leading axes and literals', () => {
    const bindings: Bindings = new Map<string, number | string | readonly (number | string)[]>([
      ['...', ['T', 2]],
      ['H', 8],
    ]);
    expect(shapeOf('op', 'y', '... 1 H', bindings)).toEqual(['T', 2, 1, 8]);
    expect(() => shapeOf('op', 'y', 'Z', bindings)).toThrow('no binding of Z');
  });
});

describe('maxElements', () => {
  it('substitutes capacities for symbols', () => {
    expect(maxElements(['T', 3, 'T'], new Map([['T', 5]]))).toBe(75);
    expect(maxElements([], new Map())).toBe(1);
    expect(maxElements(['Q'], new Map())).toBeNaN();
  });
});
