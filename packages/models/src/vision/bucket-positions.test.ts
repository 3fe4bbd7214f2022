/** Positions of patches against those of torch. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { bucketPositions } from './bucket-positions.js';

interface Golden {
  readonly positions: readonly (readonly number[])[];
}

const path = fileURLToPath(new URL('__fixtures__/patch-positions.json', import.meta.url));
const { positions } = JSON.parse(readFileSync(path, 'utf8')) as Golden;

test('positions of 1 to 64 patches per side are those of torch in float32, with its roundings', () => {
  expect(positions.length).toBe(64);
  for (const [index, expected] of positions.entries()) {
    expect([index + 1, ...bucketPositions(index + 1)]).toEqual([index + 1, ...expected]);
  }
});

test('26 and 27 patches, of Idefics3 8B and SmolVLM 2.2B, keep their places', () => {
  for (const side of [26, 27]) {
    expect([...bucketPositions(side)]).toEqual(Array.from({ length: side }, (_, index) => index));
  }
});
