/** Finds passages of a book by meaning: node main.ts QUESTION [--book book.txt] [--index book.sqlite] [--model FOLDER_OR_GGUF] */
import { readFile } from 'node:fs/promises';
import { DatabaseSync } from 'node:sqlite';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { demoModelUrl } from '@winnow/demo-model';
import { createEmbeddingProvider, createSqliteVecStore, createTextIndex } from '@winnow/embedding-provider';
import { loadEmbeddingModel } from '@winnow/engine';
import { load as loadSqliteVec } from 'sqlite-vec';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    book: { type: 'string', default: fileURLToPath(new URL('book.txt', import.meta.url)) },
    index: { type: 'string', default: ':memory:' }, // a file keeps it for the next question
    model: { type: 'string' },
    limit: { type: 'string', default: '3' },
  },
});

// A closed pipe, such as that of `| head`, ends the program.
process.stdout.on('error', () => process.exit());

const question = positionals.join(' ') || 'a ship on the rocks and men who wave';

/** Passages of at most so many tokens, cut between sentences. */
function split(book: string, maxTokens: number, countTokens: (text: string) => number): string[] {
  const passages: string[] = [];
  for (const paragraph of book.split(/\n\s*\n/)) {
    let passage = '';
    for (const sentence of paragraph.trim().split(/(?<=[.!?]["']?)\s+/)) {
      const longer = passage === '' ? sentence : `${passage} ${sentence}`;
      if (passage !== '' && countTokens(longer) > maxTokens) {
        passages.push(passage);
        passage = sentence;
      } else passage = longer;
    }
    if (passage !== '') passages.push(passage);
  }
  return passages;
}

// The demo model says how texts continue, not what they mean; a model made for embedding finds much better.
const model = await loadEmbeddingModel(values.model ?? demoModelUrl, values.model ? {} : { pooling: 'mean' });
const provider = createEmbeddingProvider(model, { overflow: 'chunk-average' }); // for sentences without an end
const database = new DatabaseSync(values.index, { allowExtension: true });
loadSqliteVec(database);
const store = createSqliteVecStore(database, { dimensions: provider.dimensions, table: 'passages' });
const index = createTextIndex({ provider, store });

if ((await store.count()) === 0) {
  const maxTokens = Math.min(128, provider.maxTokens);
  const book = await readFile(values.book, 'utf8');
  const passages = split(book, maxTokens, (text) => model.encodeText(text).length);
  await index.insert(passages.map((text, number) => ({ id: String(number), text })));
  console.log(`stored ${passages.length} passages`);
} else console.log(`found ${await store.count()} passages`);

for (const { similarity, text } of await index.search(question, { limit: Number(values.limit) })) {
  console.log(`\n${similarity.toFixed(3)}  ${text}`);
}
database.close();
await model.dispose();
