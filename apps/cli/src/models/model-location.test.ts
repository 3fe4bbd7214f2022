import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { demoModelUrl } from '@winnow/demo-model';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { displayName, isPlainlyModel, parseModelReference } from './model-location.js';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-cli-'));
  mkdirSync(join(folder, 'model'));
  writeFileSync(join(folder, 'model', 'config.json'), '{}');
  writeFileSync(join(folder, 'a.gguf'), 'GGUF');
});
afterAll(() => rmSync(folder, { recursive: true }));

describe('parseModelReference', () => {
  test('defaults to the demo model', () => {
    expect(parseModelReference(undefined)).toEqual({ kind: 'location', location: demoModelUrl });
  });

  test('finds the demo model by its name, too', () => {
    expect(parseModelReference('winnow-tiny')).toEqual({ kind: 'location', location: demoModelUrl });
    expect(displayName('winnow-tiny', 'model')).toBe('winnow-tiny');
  });

  test.each(['./model', '/a/b', 'model.gguf', 'models/model.gguf', '../x', 'a/b/c'])('%s is a path', (text) => {
    expect(parseModelReference(text)).toEqual({ kind: 'location', location: text });
  });

  test.each(['https://example.com/a.gguf', 'http://localhost:1/m/', 'file:///a/', 's3://bucket/a/b.gguf'])(
    '%s is a URL',
    (text) => {
      expect(parseModelReference(text)).toEqual({ kind: 'location', location: new URL(text) });
    },
  );

  test.each([
    ['hf:owner/name', { repo: 'owner/name', revision: undefined, file: undefined }],
    ['hf:gpt2', { repo: 'gpt2', revision: undefined, file: undefined }],
    ['owner/name', { repo: 'owner/name', revision: undefined, file: undefined }],
    ['owner/na.me-2:q4_k_m', { repo: 'owner/na.me-2', revision: undefined, file: 'q4_k_m' }],
    ['hf:owner/name@v1:sub/file.gguf', { repo: 'owner/name', revision: 'v1', file: 'sub/file.gguf' }],
  ])('%s is a repository', (text, request) => {
    expect(parseModelReference(text)).toEqual({ kind: 'hub', request, isAmbiguous: !text.startsWith('hf:') });
  });

  test('an existing path is a path, even if it looks like a repository', () => {
    const before = process.cwd();
    process.chdir(join(folder, '..'));
    try {
      const text = `${folder.split(/[\\/]/).at(-1)}/model`;
      expect(parseModelReference(text)).toEqual({ kind: 'location', location: text });
    } finally {
      process.chdir(before);
    }
  });

  test.each(['', 'hf:', 'hf:a/b/c', 'hf:/x', 'http://'])('rejects %j', (text) => {
    expect(() => parseModelReference(text)).toThrow(/^MODEL: expected/);
  });
});

test('a single argument counts as a model only if it exists', () => {
  expect(isPlainlyModel(join(folder, 'a.gguf'))).toBe(true);
  expect(isPlainlyModel(join(folder, 'model'))).toBe(true);
  expect(isPlainlyModel(fileURLToPath(demoModelUrl))).toBe(true);
  expect(isPlainlyModel('hf:owner/name')).toBe(true);
  expect(isPlainlyModel('https://example.com/a.gguf')).toBe(true);
  for (const text of [
    'owner/name',
    'missing.gguf',
    folder,
    'Hello',
    '',
    'a\0b',
    'x'.repeat(10_000),
    'see https://a.b/',
  ]) {
    expect(isPlainlyModel(text)).toBe(false);
  }
});
