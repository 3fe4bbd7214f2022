import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { groupGgufFiles, isSafeFileName, selectFiles } from './index.js';
import { matchesPattern, mmprojBeside } from './select-files.js';

const config = ['config.json', 'merges.txt', 'tokenizer.model', 'chat_template.jinja'];

describe('selectFiles', () => {
  it.each([
    ['one file', ['model.safetensors', 'model.fp16.safetensors', 'pytorch_model.bin'], ['model.safetensors']],
    [
      'shards',
      [
        'model-00001-of-00002.safetensors',
        'model-00002-of-00002.safetensors',
        'model.safetensors.index.json',
        'consolidated.safetensors',
        'pytorch_model.bin.index.json',
      ],
      ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors', 'model.safetensors.index.json'],
    ],
    ['one file of another name', ['weights.safetensors', 'original/x.safetensors'], ['weights.safetensors']],
    [
      'layers beside the weights',
      ['sparse_linear.pt', 'colbert_linear.safetensors', 'other.pt', 'm.safetensors'],
      ['sparse_linear.pt', 'colbert_linear.safetensors', 'm.safetensors'],
    ],
    ['one GGUF', ['m.gguf'], ['m.gguf']],
    [
      'a split GGUF',
      ['m-00001-of-00002.gguf', 'm-00002-of-00002.gguf'],
      ['m-00001-of-00002.gguf', 'm-00002-of-00002.gguf'],
    ],
  ])('selects %s with its config', (_, weights, expected) => {
    expect(selectFiles([...config, 'README.md', 'onnx/config.json', ...weights])).toEqual([...config, ...expected]);
  });

  it('lists the files when there are no weights', () => {
    expect(() => selectFiles([...config, 'pytorch_model.bin'])).toThrow(/pytorch_model\.bin/);
    expect(() => selectFiles([])).toThrow(/no weights/);
    expect(() => selectFiles(config, { files: ['none.json'] })).toThrow(/"none\.json"/);
    expect(() => selectFiles(config, { files: ['*.bin'] })).toThrow(/"\*\.bin"/);
  });

  it('does not mistake an image encoder for a model, and selects the one of a model on request', () => {
    const names = ['m-q4_0.gguf', 'mmproj-m-f32.gguf', 'mmproj-m-q8_0.gguf', 'mmproj-m-BF16.gguf', 'q8/m.gguf'];
    const ignore = ['q8/*'];
    expect(selectFiles(names, { ignore })).toEqual(['m-q4_0.gguf']);
    expect(selectFiles(names, { ignore, mmproj: true })).toEqual(['m-q4_0.gguf', 'mmproj-m-BF16.gguf']);
    expect(selectFiles(names, { gguf: 'q4_0', mmproj: true })).toEqual(['m-q4_0.gguf', 'mmproj-m-BF16.gguf']);
    // none in its folder
    expect(selectFiles(names, { gguf: 'q8/m', mmproj: true })).toEqual(['q8/m.gguf']);
    expect(() => selectFiles(names, { gguf: 'mmproj' })).toThrow(/"mmproj"/);
    expect(selectFiles(names, { files: ['mmproj-m-f32.gguf'] })).toEqual(['mmproj-m-f32.gguf']);
  });

  it('leaves out ignored files', () => {
    expect(selectFiles([...config, 'a.safetensors', 'b.safetensors'], { ignore: ['b*', '*.txt'] })).toEqual([
      'config.json',
      'tokenizer.model',
      'chat_template.jinja',
      'a.safetensors',
    ]);
  });
});

describe('groupGgufFiles', () => {
  it('joins complete splits', () => {
    expect(
      groupGgufFiles([
        'x.gguf',
        'q/m-00002-of-00002.gguf',
        'q/m-00001-of-00002.gguf',
        'n-00001-of-00003.gguf',
        'h-00001-of-99999.gguf',
      ]),
    ).toEqual([
      { name: 'x.gguf', parts: ['x.gguf'] },
      { name: 'q/m-00001-of-00002.gguf', parts: ['q/m-00001-of-00002.gguf', 'q/m-00002-of-00002.gguf'] },
    ]);
  });
});

describe('matchesPattern', () => {
  it('matches like a regular expression', () => {
    const char = fc.constantFrom('a', 'b', '/', '.');
    const pattern = fc.string({ unit: fc.oneof(char, fc.constantFrom('*', '?')), maxLength: 8 });
    fc.assert(
      fc.property(fc.string({ unit: char, maxLength: 10 }), pattern, (name, glob) => {
        const source = glob.replace(/[./]/g, '\\$&').replace(/\*+/g, '.*').replace(/\?/g, '.');
        expect(matchesPattern(name, glob)).toBe(new RegExp(`^${source}$`).test(name));
      }),
      { numRuns: 5000, seed: 2 },
    );
  });

  it('handles hostile patterns in linear time', () => {
    expect(matchesPattern('a'.repeat(2000), `${'*a'.repeat(500)}b`)).toBe(false);
  });
});

describe('isSafeFileName', () => {
  it.each(['config.json', '1_Pooling/config.json', 'a b#c?.txt', '..a', 'é'])('%j is safe', (name) =>
    expect(isSafeFileName(name)).toBe(true),
  );
  it.each(['', '.', '..', '/a', 'a/', 'a//b', '../a', 'a/../b', 'a\\b', 'C:a', 'a\0b', 'a'.repeat(2000)])(
    '%j is not safe',
    (name) => expect(isSafeFileName(name)).toBe(false),
  );
});

it('prefers the image encoder with the name of the model', () => {
  const names = ['a.gguf', 'b.gguf', 'mmproj-a.gguf', 'mmproj-b.gguf', 'mmproj-f16.gguf', 'mmproj-c-f16.gguf'];
  expect(mmprojBeside('a.gguf', names)).toBe('mmproj-a.gguf');
  expect(mmprojBeside('b.gguf', names)).toBe('mmproj-b.gguf');
  expect(
    mmprojBeside(
      'x/b.gguf',
      names.map((name) => `x/${name}`),
    ),
  ).toBe('x/mmproj-b.gguf');
  expect(mmprojBeside('d.gguf', names)).toBe('mmproj-c-f16.gguf');
});
