/**
 * Checks that every relative link of every document leads to a file of the repository, and every anchor to a heading.
 */
import { existsSync, statSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { listDocuments, readDocument, type Document } from './markdown.ts';
import { slashed } from './workspace.ts';

/** @returns one line per broken link. Links to other hosts are not checked: gates need no network. */
export function checkLinks(root: string): string[] {
  const known = new Map<string, Document>();
  const open = (path: string): Document => {
    const document = known.get(path) ?? readDocument(path);
    known.set(path, document);
    return document;
  };
  const problems: string[] = [];
  let numLinks = 0;
  for (const file of listDocuments(root)) {
    for (const { line, target } of open(file).links) {
      if (/^([a-z][a-z\d+.-]*:|\/\/)/i.test(target)) continue;
      numLinks += 1;
      const problem = problemOf(root, file, target, open);
      if (problem) problems.push(`${slashed(relative(root, file))}:${line}: ${target}: ${problem}`);
    }
  }
  if (numLinks === 0) problems.push('links: no relative link was found, so nothing was checked');
  return problems;
}

function problemOf(root: string, file: string, target: string, open: (path: string) => Document): string | undefined {
  const [path = '', anchor] = decodeURIComponent(target).split('#', 2);
  if (path.startsWith('/')) return 'links within the repository must be relative';
  const absolute = path === '' ? file : join(dirname(file), path);
  if (relative(root, absolute).startsWith('..')) return 'leads out of the repository';
  if (!existsSync(absolute)) return 'no such file';
  if (/(^|\/)(node_modules|dist|docs\/api)(\/|$)/.test(slashed(relative(root, absolute))))
    return 'is not tracked by git';
  if (anchor === undefined) return undefined;
  if (statSync(absolute).isDirectory() || !absolute.endsWith('.md')) return 'only documents have anchors';
  return open(absolute).anchors.has(anchor) ? undefined : 'no such heading';
}
