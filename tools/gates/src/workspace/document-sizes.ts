/** How long the root README is, and the longest decision. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Budget } from './budget.ts';
import { listFiles } from './workspace.ts';

const maxRootReadmeLines = 150;
/** A page. */
const maxDecisionWords = 550;
const decisionFolder = 'docs/decisions';

export function documentSizes(root: string): Budget[] {
  const readme = join(root, 'README.md');
  const readmeLines = existsSync(readme) ? readFileSync(readme, 'utf8').trimEnd().split('\n').length : 0;
  let longest = { words: 0, place: decisionFolder };
  for (const file of listFiles(join(root, decisionFolder), (path) => path.endsWith('.md'))) {
    const text = readFileSync(join(root, decisionFolder, file), 'utf8');
    // words begin with a letter or a digit, marks of tables and lists do not
    const words = text.match(/[\p{L}\p{N}]\S*/gu)?.length ?? 0;
    if (words > longest.words) longest = { words, place: `${decisionFolder}/${file}` };
  }
  return [
    { name: 'lines of the root README', value: readmeLines, limit: maxRootReadmeLines, place: 'README.md' },
    { name: 'words of the longest decision', value: longest.words, limit: maxDecisionWords, place: longest.place },
  ];
}
