import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { iq1Grid, iq2SGrid, iq2XsGrid, iq2XxsGrid, iq3SGrid, iq3XxsGrid, type Grid } from './iq-grids.js';

// Digests of the unpacked int8 tables of the Python package gguf 0.19.0 (`grid` of each class in gguf/quants.py).
const books: readonly [string, Grid, number, string][] = [
  ['iq2_xxs', iq2XxsGrid, 256 * 8, '05826b5d3e472a3a78f196be62ac78acf81df0f909626e12ab9fa2a5d490dd54'],
  ['iq2_xs', iq2XsGrid, 512 * 8, '06e47aaca60b4dc1d9b5a3f34540437058a6b142b4d7a59d5ded769b4d1bf1de'],
  ['iq2_s', iq2SGrid, 1024 * 8, 'e1aa1473412b0552c2174c30ef22ab4073f6a181b85a17056e8249bd2932fd88'],
  ['iq3_xxs', iq3XxsGrid, 256 * 4, '46e35f5a997efdee6c99ce57854c8a0d4f0ff8ca57e5e8a60c0793ea580acf5d'],
  ['iq3_s', iq3SGrid, 512 * 4, 'bd1af4945a1717c65610b0284e4628b9a1ba3b306fae3a06f6e5f597356e349f'],
  ['iq1_s', iq1Grid, 2048 * 8, '07540ffc1aeaf6ad4d97e96b0fcc765aae39671d4ae4a27bbd0e796fde167c6a'],
];

test.each(books)('%s has the complete codebook', (_name, grid, numElements, digest) => {
  expect(grid().length).toBe(numElements);
  expect(createHash('sha256').update(grid()).digest('hex')).toBe(digest);
  expect(grid()).toBe(grid());
});
