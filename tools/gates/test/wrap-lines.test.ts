import { expect, test } from 'vitest';
import { wrapLine } from '../src/releases/wrap-lines.ts';

const long = 'a'.repeat(100);

test('short lines stay unchanged', () => {
  expect(wrapLine("type A = 'b' | 'c';")).toEqual(["type A = 'b' | 'c';"]);
});

test('parameters get lines of their own, destructured ones stay whole', () => {
  expect(
    wrapLine(`  function ${long}<T extends Map<A, B>>({ a, b }: C, d: (e: F, g: H) => I): Promise<J, K> {`),
  ).toEqual([
    `  function ${long}<T extends Map<A, B>>(`,
    '    { a, b }: C,',
    '    d: (e: F, g: H) => I',
    '  ): Promise<J, K> {',
  ]);
  expect(wrapLine(`const names: readonly ['${long}', 'a', 'b', 'c', 'd'];`)).toEqual([
    'const names: readonly [',
    `  '${long}',`,
    "  'a',",
    "  'b',",
    "  'c',",
    "  'd'",
    '];',
  ]);
});

test('members of unions, too', () => {
  expect(wrapLine(`type A<T = unknown> = Pick<${long}, 'a' | 'b'> | 'c' | D[];`)).toEqual([
    'type A<T = unknown> =',
    `  | Pick<${long}, 'a' | 'b'>`,
    "  | 'c'",
    '  | D[];',
  ]);
});
