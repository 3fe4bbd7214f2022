/** Finds pictures by words: node main.ts WORDS [--pictures FOLDER] [--model FOLDER] [--limit 3] */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { createEmbeddingProvider } from '@winnow/embedding-provider';
import { loadEmbeddingModel } from '@winnow/engine';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    pictures: { type: 'string', default: fileURLToPath(new URL('pictures', import.meta.url)) },
    model: { type: 'string', default: fileURLToPath(new URL('model', import.meta.url)) },
    limit: { type: 'string', default: '3' },
  },
});
const words = positionals.join(' ') || 'a red circle';

const model = await loadEmbeddingModel(values.model);
const provider = createEmbeddingProvider(model);
if (provider.embedImages === undefined) throw new Error(`${model.name} takes no images`);

const names = (await readdir(values.pictures)).filter((name) => /\.(png|jpe?g|webp)$/i.test(name)).toSorted();
const files = await Promise.all(names.map((name) => readFile(join(values.pictures, name))));
const pictures = await provider.embedImages(files);
const query = await provider.embed(words, { kind: 'query' });

// all vectors have length 1, so that the dot product is the cosine
const found = pictures.map((vector, index) => ({
  name: names[index],
  similarity: vector.reduce((sum, value, i) => sum + value * query[i], 0),
}));
found.sort((a, b) => b.similarity - a.similarity);
for (const { name, similarity } of found.slice(0, Number(values.limit))) {
  console.log(`${similarity.toFixed(3)}  ${name}`);
}
await model.dispose();
