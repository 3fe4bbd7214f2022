/** Browser entries do not import Node modules. Runs without a browser. */
import { describe, expect, test } from 'vitest';
import { bundlePackage, bundlePage } from './support/bundle.js';

const packages = [
  'backend-wasm',
  'bytes',
  'demo-model',
  'engine',
  'gguf',
  'hub',
  'models',
  'ops',
  'safetensors',
  'tensor',
  'tokenizers',
];

describe('bundles for browsers', () => {
  test.each(packages)('@winnow/%s has no import of Node and no file for Node', async (name) => {
    const { sources } = await bundlePackage(name);
    expect(sources.filter((path) => path.startsWith(`packages/${name}/src/`))).not.toEqual([]);
    expect(sources.filter((path) => path.includes('.node.'))).toEqual([]);
  });

  test.each(['conformance', 'engine', 'formats', 'hub', 'int8', 'tiers'])('the page "%s"', async (name) => {
    const { sources } = await bundlePage(name);
    expect(sources.filter((path) => path.includes('.node.'))).toEqual([]);
  });

  test('an entry for Node is rejected', async () => {
    await expect(bundlePackage('hub', '/node')).rejects.toThrow('Could not resolve "fs"');
  });
});
