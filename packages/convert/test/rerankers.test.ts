/** Golden rerankers, converted from folder to GGUF and from GGUF to folder and back, give the original scores. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadReranker } from '@winnow/engine';
import { openGgufFile } from '@winnow/gguf/node';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { convertFiles } from '../src/index.node.js';

const pathOf = (name: string, file: string): string =>
  fileURLToPath(new URL(`../../engine/test/fixtures/rerank/${name}/${file}`, import.meta.url));
const query = 'Where is the harbor?';
const documents = ['The harbor is by the sea.', 'Two eggs.', 'storm'];

let backend: Backend;
let folder: string;
beforeAll(() => {
  backend = createReferenceBackend();
  folder = mkdtempSync(join(tmpdir(), 'winnow-convert-'));
});
afterAll(async () => {
  await backend.dispose();
  rmSync(folder, { recursive: true });
});

async function scores(path: string): Promise<number[]> {
  await using model = await loadReranker(path, { backend });
  const ranked = await model.rerank(query, documents, { normalize: false });
  return ranked.toSorted((a, b) => a.index - b.index).map(({ score }) => score);
}

describe.each(['bert', 'xlm-roberta', 'modern-bert'])('%s', (name) => {
  test('folder to GGUF: the tensors of the golden file, and its scores', async () => {
    const path = join(folder, `${name}.gguf`);
    await convertFiles(pathOf(name, 'hf'), path);
    expect(await scores(path)).toEqual(await scores(pathOf(name, 'hf')));
    const shapes = async (file: string): Promise<string[]> => {
      const opened = await openGgufFile(file);
      const shown = [...opened.tensors.values()].map(({ name: own, shape }) => `${own} ${shape.join('x')}`);
      await opened.close();
      return shown.toSorted();
    };
    expect(await shapes(path)).toEqual(await shapes(pathOf(name, 'model.gguf')));
  });

  test('GGUF to folder and back', async () => {
    const path = join(folder, name);
    await convertFiles(pathOf(name, 'model.gguf'), path);
    const { architectures } = JSON.parse(readFileSync(join(path, 'config.json'), 'utf8')) as {
      architectures: string[];
    };
    const original = JSON.parse(readFileSync(pathOf(name, 'hf/config.json'), 'utf8')) as { architectures: string[] };
    expect(architectures).toEqual(original.architectures);
    // the vocabulary of XLM-RoBERTa is not written to tokenizer.json, and without one there are no pairs
    if (name === 'xlm-roberta') return;
    const expected = await scores(pathOf(name, 'model.gguf'));
    expect(await scores(path)).toEqual(expected);
    const back = join(folder, `${name}-back.gguf`);
    await convertFiles(path, back);
    expect(await scores(back)).toEqual(expected);
  });
});

test('a Qwen3-Reranker file is not a folder, since it has two rows of the output matrix only', async () => {
  await expect(convertFiles(pathOf('qwen3', 'model.gguf'), join(folder, 'judge'))).rejects.toThrow(
    'a reranker file has only the rows of its two answers',
  );
});
