/**
 * Generates documentation from results: JSON next to each printed result, and the tables and pictures of the root README.
 * Run by `pnpm --filter @winnow/bench readme-tables`; a test checks that they are current.
 */
import { existsSync, globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseTextResults } from '../results/parse-text.js';
import { formatResults, parseResults, type Results } from '../results/results.js';
import { attentionMap, pairCounts, timeOverContext } from './pictures.js';
import { replaceBetween, speedTable } from './readme-tables.js';

/** Contents by path below the repository root; writes nothing. */
export async function generatedDocs(root: string): Promise<ReadonlyMap<string, string>> {
  const files = new Map<string, string>();
  for (const path of globSync('docs/benchmarks/*/*.txt', { cwd: root }).toSorted()) {
    const results = parseTextResults(readFileSync(join(root, path), 'utf8'), path);
    files.set(path.replace(/\.txt$/, '.json'), formatResults(results));
  }
  const read = (name: string): Results => {
    const path = `docs/benchmarks/${name}.json`;
    return parseResults(files.get(path) ?? readFileSync(join(root, path), 'utf8'), path);
  };
  const readme = readFileSync(join(root, 'README.md'), 'utf8');
  files.set('README.md', replaceBetween(readme, 'speed', speedTable(read)));
  files.set('docs/images/pair-counts.svg', await pairCounts());
  files.set('docs/images/time-over-context.svg', await timeOverContext(read));
  files.set('docs/images/attention-map.svg', await attentionMap());
  return files;
}

/** @returns the paths of files that were missing or different */
export async function writeDocs(root: string): Promise<readonly string[]> {
  const changed: string[] = [];
  for (const [path, content] of await generatedDocs(root)) {
    const file = join(root, path);
    if (existsSync(file) && readFileSync(file, 'utf8') === content) continue;
    writeFileSync(file, content);
    changed.push(path);
  }
  return changed;
}
