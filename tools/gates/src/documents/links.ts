/**
 * Checks that every relative link of every document leads to a file of the repository, and every anchor to a heading.
 */
import { existsSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { listFiles, slashed } from '../workspace/workspace.ts';
import { listDocuments, readDocument, type Document } from './markdown.ts';

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
  if (/(^|\/)(node_modules|dist)(\/|$)/.test(slashed(relative(root, absolute)))) return 'is not tracked by git';
  if (anchor === undefined) return undefined;
  if (statSync(absolute).isDirectory() || !absolute.endsWith('.md')) return 'only documents have anchors';
  return open(absolute).anchors.has(anchor) ? undefined : 'no such heading';
}

/** Sources of packages in drawings, such as `engine/src/a.ts, b.ts`, which name files of one folder. */
const drawnPaths = /(?<=\s)[a-z-]+\/(?:src|assembly|codegen)(?:\/[\w.-]+)*(?:, [\w-]+\.ts)*(?=[\s,])/g;

/** Functions of chains in drawings, such as `loadModel → Class.method ─▶ #method`. */
const drawnFunctions = /[#\w.]+(?= (?:→|─▶) [#a-z])|(?<=→ |→.* ─▶ )[#\w.]+/gi;

/**
 * @returns one line per path in the drawings of `CONTRIBUTING.md` that is not below `packages`, and per function of a
 *   chain that no package has
 */
export function checkDrawings(root: string): string[] {
  const text = readFileSync(join(root, 'CONTRIBUTING.md'), 'utf8');
  const drawings = [...text.matchAll(/^```text\n(.*?)^```/gms)].map(([, drawing = '']) => drawing);
  const paths = drawings
    .flatMap((drawing) => drawing.match(drawnPaths) ?? [])
    .flatMap((list) => {
      const [first = '', ...names] = list.split(', ');
      return [first, ...names.map((name) => slashed(join(dirname(first), name)))];
    });
  return [
    ...paths
      .filter((path) => !existsSync(join(root, 'packages', path)))
      .map((path) => `CONTRIBUTING.md: packages/${path}: no such file`),
    ...checkChains(root, drawings),
  ];
}

/** Files in code spans, such as `blocks/experts.ts`; not patterns, nor files that a build generates. */
const namedFile = /`((?:[\w.-]+\/)*[\w-][\w.-]*\.(?:ts|mjs|json|md|txt))`/g;

/** @returns one line per file that a recipe or `CONTRIBUTING.md` names, in full or by the end of its path, and that is not there */
export function checkNamedFiles(root: string): string[] {
  const files = listFiles(root).map((path) => `/${path}`);
  const recipes = listFiles(join(root, 'docs', 'recipes')).map((path) => `docs/recipes/${path}`);
  return ['CONTRIBUTING.md', ...recipes].flatMap((document) => {
    const names = [...readFileSync(join(root, document), 'utf8').matchAll(namedFile)].map(([, name = '']) => name);
    return names
      .filter((name) => !name.includes('.generated.') && !files.some((path) => path.endsWith(`/${name}`)))
      .map((name) => `${document}: ${name}: no such file`);
  });
}

function checkChains(root: string, drawings: readonly string[]): string[] {
  const lines = drawings.flatMap((drawing) => drawing.split('\n')).filter((line) => line.includes(' → '));
  const names = new Set(lines.flatMap((line) => line.match(drawnFunctions) ?? []));
  if (names.size === 0) return [];
  const folder = join(root, 'packages');
  const isSource = (path: string): boolean => /\/src\/.*(?<!\.test)\.ts$/.test(path);
  const sources = listFiles(folder, isSource).map((path) => readFileSync(join(folder, path), 'utf8'));
  const isDeclared = (name: string): boolean => {
    const declaration = new RegExp(`(?:function|class|interface|const|readonly|async|static|^) *\\*? *${name}\\b`, 'm');
    return sources.some((source) => declaration.test(source));
  };
  return [...names]
    .filter((name) => !name.split('.').every(isDeclared))
    .map((name) => `CONTRIBUTING.md: ${name}: no such function`);
}
