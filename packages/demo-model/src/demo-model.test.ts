import { createHash } from 'node:crypto';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { demoModelUrl } from './index.js';

const read = (name: string): Buffer => readFileSync(new URL(name, demoModelUrl));
const readJson = (name: string): Record<string, unknown> =>
  JSON.parse(read(name).toString('utf8')) as Record<string, unknown>;
const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

const files = {
  'config.json': '7bab835cfbbd237585efbdf4711d85b6f97c09e650a446451b56e8ffc5e1f437',
  'generation_config.json': '0daa5f4e8cd36007f13621a296fabe18d0f99d96b5a82b2bb6bd281a20316a50',
  'model.safetensors': '331ad5e2c3b3e3e2de6f7035215402013b553bff44da34e8a1611d521813c45c',
  'tokenizer.json': '4b2751153598b8780f407e9b68fbdbacbde1b6018c1cb1ac9b106485acef2175',
  'tokenizer_config.json': 'dfbeebc8f78b531b2abf1d067bf61d18ada88761df8ae104cbd8a472df09b640',
};

describe('demo model', () => {
  test('the URL is a folder inside the package', () => {
    expect(demoModelUrl.href.endsWith('/')).toBe(true);
    expect(existsSync(new URL('../package.json', demoModelUrl))).toBe(true);
    expect(fileURLToPath(demoModelUrl)).toMatch(/demo-model[\\/]model[\\/]$/);
  });

  test.each(Object.entries(files))('%s is the published file, byte for byte', (name, expected) => {
    expect(sha256(read(name))).toBe(expected);
  });

  test('the folder contains only the model, its card and its training log', () => {
    expect(readdirSync(demoModelUrl).sort()).toEqual(
      [...Object.keys(files), 'MODEL_CARD.md', 'training-log.csv'].sort(),
    );
  });

  test('the npm package contains the folder', () => {
    const manifest = JSON.parse(readFileSync(new URL('../package.json', demoModelUrl), 'utf8')) as { files: string[] };
    expect(manifest.files).toContain('model');
  });

  test('the weights have the number of parameters that the card states', () => {
    const weights = read('model.safetensors');
    const headerBytes = Number(weights.readBigUInt64LE(0));
    const header = JSON.parse(weights.subarray(8, 8 + headerBytes).toString('utf8')) as Record<
      string,
      { dtype?: string; shape?: number[] }
    >;
    const tensors = Object.entries(header).filter(([name]) => name !== '__metadata__');
    const total = tensors.reduce(
      (sum, [, { shape = [] }]) => sum + shape.reduce((product, dim) => product * dim, 1),
      0,
    );
    const [, stated] = /A ([\d,]+)-parameter/.exec(read('MODEL_CARD.md').toString('utf8')) ?? [];
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
