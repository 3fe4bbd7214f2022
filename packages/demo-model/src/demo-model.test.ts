import { createHash } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { demoModelUrl } from './index.js';

const folder = new URL('.', demoModelUrl);
const read = (name: string): Buffer => readFileSync(new URL(name, folder));
const readJson = (name: string): Record<string, unknown> =>
  JSON.parse(read(name).toString('utf8')) as Record<string, unknown>;
const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

const files = {
  'config.json': '7bab835cfbbd237585efbdf4711d85b6f97c09e650a446451b56e8ffc5e1f437',
  'generation_config.json': '0daa5f4e8cd36007f13621a296fabe18d0f99d96b5a82b2bb6bd281a20316a50',
  'model.safetensors': '944bd7189209b92ead7d330c0257fad32667d1b465d7514805e7306e889da964',
  'tokenizer.json': '4b2751153598b8780f407e9b68fbdbacbde1b6018c1cb1ac9b106485acef2175',
  'tokenizer_config.json': 'dfbeebc8f78b531b2abf1d067bf61d18ada88761df8ae104cbd8a472df09b640',
};

/** The header of the weights, and the bytes after it. */
function readWeights(): { readonly header: Record<string, unknown>; readonly data: Buffer } {
  const bytes = read('model.safetensors');
  const dataAt = 8 + Number(bytes.readBigUInt64LE(0));
  const header = JSON.parse(bytes.subarray(8, dataAt).toString('utf8')) as Record<string, unknown>;
  return { header, data: bytes.subarray(dataAt) };
}

describe('demo model', () => {
  test('the URL is a file inside the package', () => {
    expect(fileURLToPath(demoModelUrl)).toMatch(/demo-model[\\/]src[\\/]model[\\/]model\.safetensors$/);
  });

  test('bundlers recognize the URL: its path is a literal', () => {
    const source = readFileSync(new URL('../demo-model.ts', folder), 'utf8');
    expect(source).toContain("new URL('./model/model.safetensors', import.meta.url)");
  });

  test.each(Object.entries(files))('%s is the published file, byte for byte', (name, expected) => {
    expect(sha256(read(name))).toBe(expected);
  });

  test('the folder contains only the model', () => {
    expect(readdirSync(folder).sort()).toEqual(Object.keys(files).sort());
  });

  test('the header carries the texts of the folder, so that the file is a whole model', () => {
    const texts = Object.keys(files).filter((name) => name.endsWith('.json'));
    const expected = Object.fromEntries(texts.map((name) => [name, read(name).toString('utf8')]));
    expect(readWeights().header['__metadata__']).toEqual({ format: 'pt', ...expected });
  });

  test('the weights have the number of parameters that the card states', () => {
    const { header } = readWeights();
    const tensors = Object.entries(header as Record<string, { dtype?: string; shape?: number[] }>).filter(
      ([name]) => name !== '__metadata__',
    );
    const total = tensors.reduce(
      (sum, [, { shape = [] }]) => sum + shape.reduce((product, dim) => product * dim, 1),
      0,
    );
    const [, stated] = /A ([\d,]+)-parameter/.exec(read('../../MODEL_CARD.md').toString('utf8')) ?? [];
    expect(total).toBe(Number(stated?.replaceAll(',', '')));
    expect(new Set(tensors.map(([, { dtype }]) => dtype))).toEqual(new Set(['F16']));
    expect(readJson('config.json')['model_type']).toBe('llama');
  });

  test('the goldens belong to this vocabulary', () => {
    const path = new URL('./__fixtures__/goldens.json', import.meta.url);
    const { prompts } = JSON.parse(readFileSync(path, 'utf8')) as {
      prompts: { text: string; ids: number[]; greedy: number[]; top5: { id: number; logit: number }[] }[];
    };
    const vocabSize = readJson('config.json')['vocab_size'] as number;
    expect(prompts).toHaveLength(4);
    for (const { ids, greedy, top5 } of prompts) {
      expect(greedy).toHaveLength(64);
      expect(greedy[0]).toBe(top5[0]?.id);
      for (const id of [...ids, ...greedy]) expect(id >= 0 && id < vocabSize).toBe(true);
    }
  });
});
