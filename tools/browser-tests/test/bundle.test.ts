/** Browser entries do not import Node modules. Runs without a browser. */
import { beforeAll, describe, expect, test } from 'vitest';
import { bundlePackages, bundlePage } from './support/bundle.js';

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
  let bundles: Awaited<ReturnType<typeof bundlePackages>>;
  beforeAll(async () => {
    bundles = await bundlePackages(packages);
  });

  test.each(packages)('@winnow/%s has no import of Node and no file for Node', (name) => {
    const sources = bundles.get(name)?.sources ?? [];
    expect(sources.filter((path) => path.startsWith(`packages/${name}/src/`))).not.toEqual([]);
    expect(sources.filter((path) => path.includes('.node.'))).toEqual([]);
  });

  test.each(['conformance', 'engine', 'formats', 'hub', 'int8', 'tiers'])('the page "%s"', async (name) => {
    const { sources } = await bundlePage(name);
    expect(sources.filter((path) => path.includes('.node.'))).toEqual([]);
  });

  test('an entry for Node is rejected', async () => {
    await expect(bundlePackages(['hub/node'])).rejects.toThrow('Could not resolve "fs"');
  });
});
