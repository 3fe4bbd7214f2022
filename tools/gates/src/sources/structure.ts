/** House structure: contents of a package folder, rules for `index.ts`, length of files and of functions that the linter does not read. */
import { existsSync, readFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import { parseFile } from '../workspace/imports.ts';
import {
  isCpp,
  isPython,
  isSource,
  listFiles,
  type Place,
  placesOf,
  type Workspace,
  type WorkspacePackage,
} from '../workspace/workspace.ts';
import { longestCppFunction } from './cpp-functions.ts';
import { longestPythonFunction } from './python-functions.ts';

export const maxFileLines = 450;
const warnFileLines = 400;
const maxLineColumns = 140;
/** Of C++ and Python; the linter counts those of TypeScript. */
const maxFunctionLines = 60;
const maxFilesOfPrefix = 3;
/** One file per op, with the name of the op. */
const foldersOfOps = [
  'packages/ops/src/ops',
  'packages/conformance/src/cases',
  'packages/backend-wasm/assembly/ops',
  'packages/native/source/ops',
];
export const maxReadmeLines = 90;

export interface Findings {
  readonly problems: string[];
  readonly warnings: string[];
}

export function checkStructure(workspace: Workspace): Findings {
  const findings: Findings = { problems: [], warnings: [] };
  let numSources = 0;
  for (const entry of workspace.packages) {
    const expectedName = `@winnow/${posix.basename(entry.location)}`;
    if (entry.name !== expectedName) findings.problems.push(`${entry.location}: the name must be ${expectedName}`);
    if (existsSync(join(entry.folder, 'src', 'index.ts'))) checkLibrary(entry, findings.problems);
    checkFixtures(entry, listFiles(entry.folder), findings.problems);
  }
  for (const place of placesOf(workspace)) numSources += checkSources(place, listFiles(place.folder), findings);
  if (numSources === 0) findings.problems.push('structure: no source file was found, so nothing was checked');
  return findings;
}

/** @returns the number of source files */
function checkSources(place: Place, files: readonly string[], findings: Findings): number {
  const sources = files.filter(isSource);
  for (const file of sources) checkSource(place, file, findings);
  findings.problems.push(...checkPrefixes(place, sources));
  return sources.length;
}

function checkLibrary(entry: WorkspacePackage, problems: string[]): void {
  const { manifest, location } = entry;
  const complain = (text: string): void => {
    problems.push(`${location}: ${text}`);
  };
  for (const name of ['README.md', 'tsconfig.json', 'tsconfig.build.json', 'tsup.config.mjs', 'vitest.config.mjs']) {
    if (!existsSync(join(entry.folder, name))) complain(`${name} is missing`);
  }
  for (const script of ['build', 'typecheck', 'test']) {
    if (manifest.scripts?.[script] === undefined) complain(`package.json: script "${script}" is missing`);
  }
  if (manifest.type !== 'module') complain('package.json: "type" must be "module"');
  if (manifest.license !== 'MIT') complain('package.json: "license" must be "MIT"');
  if (manifest.sideEffects !== false)
    complain('package.json: "sideEffects" must be false, because imports have no side effects');
  if (manifest.engines?.['node'] !== '>=22.12.0') complain('package.json: engines.node must be ">=22.12.0"');
  for (const wanted of ['dist', 'src', '!src/**/*.test.ts', '!src/**/__fixtures__']) {
    if (!manifest.files?.includes(wanted)) complain(`package.json: "files" must include "${wanted}"`);
  }
  checkExports(entry, complain);
  if (listFiles(entry.folder, (path) => path.endsWith('.test.ts')).length === 0) complain('no test file (*.test.ts)');
  for (const index of listFiles(join(entry.folder, 'src'), (path) => /^index(\.node|\.browser)?\.ts$/.test(path))) {
    problems.push(...checkIndex(`${location}/src/${index}`, readFileSync(join(entry.folder, 'src', index), 'utf8')));
  }
  if (manifest.private !== true) {
    checkReadme(entry, complain);
  }
}

function checkExports(entry: WorkspacePackage, complain: (text: string) => void): void {
  for (const [path, target] of Object.entries(entry.manifest.exports ?? {})) {
    if (typeof target !== 'object' || target === null) continue;
    const [first, ...rest] = Object.entries(target);
    const rightOrder = first?.[0] === '@winnow/source' && hasRightOrder(Object.fromEntries(rest));
    if (!rightOrder)
      complain(`package.json: exports["${path}"] must have @winnow/source, types, default in this order`);
    for (const source of leaves(first?.[1])) {
      if (!existsSync(join(entry.folder, source))) complain(`exports["${path}"]: no ${source}`);
    }
  }
  if (!entry.manifest.exports?.['.']) complain('package.json: exports["."] is missing');
  if (!entry.manifest.exports?.['./package.json']) complain('package.json: exports["./package.json"] is missing');
}

/** `types` first, `default` last; the branch of a host has its own order. */
function hasRightOrder(conditions: object): boolean {
  const names = Object.keys(conditions);
  const nested = Object.values(conditions).filter((value) => typeof value === 'object' && value !== null);
  if (nested.length > 0) return names.at(-1) === 'default' && nested.every((value) => hasRightOrder(value as object));
  return names.join(' ') === 'types default';
}

function leaves(target: unknown): string[] {
  if (typeof target === 'string') return [target];
  return typeof target === 'object' && target !== null ? Object.values(target).flatMap(leaves) : [];
}

function checkReadme(entry: WorkspacePackage, complain: (text: string) => void): void {
  const path = join(entry.folder, 'README.md');
  if (!existsSync(path)) return;
  const text = readFileSync(path, 'utf8');
  const numLines = text.trimEnd().split('\n').length;
  if (numLines > maxReadmeLines) complain(`README.md: ${numLines} lines, the limit is ${maxReadmeLines}`);
  if (!/^```ts$/m.test(text)) complain('README.md: an example in a ```ts block is missing');
}

/** An entry file exports by name and contains nothing else. */
export function checkIndex(path: string, text: string): string[] {
  const problems: string[] = [];
  for (const node of parseFile(path, text).program.body) {
    if (node.type === 'ExportAllDeclaration')
      problems.push(`${path}: "export *" hides the public surface; export by name`);
    else if (node.type === 'ExportNamedDeclaration' && node.declaration === null) continue;
    else if (node.type !== 'ImportDeclaration')
      problems.push(`${path}: contains logic (${node.type}), only exports are allowed`);
  }
  return problems;
}

/** Every fixture has an ORIGIN.md in its folder or above, up to the folder of all fixtures. */
function checkFixtures(entry: WorkspacePackage, files: readonly string[], problems: string[]): void {
  const known = new Set(files);
  const bare = new Set<string>();
  for (const file of files) {
    const root = /^(.*(?:__fixtures__|test\/fixtures))\//.exec(file)?.[1];
    if (root === undefined) continue;
    let folder = posix.dirname(file);
    while (folder !== root && !known.has(`${folder}/ORIGIN.md`)) folder = posix.dirname(folder);
    if (!known.has(`${folder}/ORIGIN.md`)) bare.add(root);
  }
  for (const root of bare) problems.push(`${entry.location}/${root}: ORIGIN.md is missing for some or all files`);
}

/** Generated C++ has a folder of its own, since its files have the names of ops. */
export function isGenerated(file: string): boolean {
  return file.endsWith('.generated.ts') || /(^|\/)generated\/.*\.h$/.test(file);
}

function checkSource({ folder, location }: Place, file: string, findings: Findings): void {
  const path = `${location}/${file}`;
  const text = readFileSync(join(folder, file), 'utf8');
  const numLines = isGenerated(file) ? 0 : text.trimEnd().split('\n').length;
  if (numLines > maxFileLines) findings.problems.push(`${path}: ${numLines} lines, the limit is ${maxFileLines}`);
  else if (numLines > warnFileLines) findings.warnings.push(`${path}: ${numLines} lines, aim for ${warnFileLines}`);
  for (const [index, line] of numLines === 0 ? [] : text.split('\n').entries()) {
    if (line.length <= maxLineColumns) continue;
    findings.problems.push(`${path}:${index + 1}: ${line.length} columns, the limit is ${maxLineColumns}`);
  }
  if ((isCpp(file) || isPython(file)) && numLines > 0) checkUnlinted(path, text, findings.problems);
  if (!isPython(file) && !/^[a-z0-9]+(-[a-z0-9]+)*(\.[a-z0-9-]+)*$/.test(posix.basename(file))) {
    findings.problems.push(`${path}: file names are kebab-case`);
  }
}

/** What the formatter and the linter check in TypeScript. */
function checkUnlinted(path: string, text: string, problems: string[]): void {
  const { lines, line } = isPython(path) ? longestPythonFunction(text) : longestCppFunction(text);
  if (lines > maxFunctionLines) {
    problems.push(`${path}:${line}: a function of ${lines} lines, the limit is ${maxFunctionLines}`);
  }
  for (const [index, content] of text.split('\n').entries()) {
    if (/\t|\s$/.test(content)) problems.push(`${path}:${index + 1}: a tab, or space at the end of the line`);
  }
  if (!text.endsWith('\n')) problems.push(`${path}: the last line has no end`);
}

/**
 * Four files with one first word are a folder. Tests count apart from what they test, and a header counts once with its
 * source; generated files do not count, because their generator names them.
 */
function checkPrefixes({ location }: Place, sources: readonly string[]): string[] {
  const byPrefix = new Map<string, Set<string>>();
  for (const file of sources) {
    const folder = posix.dirname(`${location}/${file}`);
    if (isGenerated(file) || foldersOfOps.includes(folder)) continue;
    const name = posix.basename(file);
    const kind = /\.test(-d)?\.m?ts$/.test(file) ? ' (tests)' : '';
    const prefix = `${folder}/${/^[^-.]+/.exec(name)?.[0] ?? name}${kind}`;
    const names = byPrefix.get(prefix) ?? new Set();
    byPrefix.set(prefix, names.add(name.replace(/\.(cpp|h)$/, '')));
  }
  return [...byPrefix]
    .filter(([, names]) => names.size > maxFilesOfPrefix)
    .map(([prefix, names]) => `${prefix}: ${names.size} files with one prefix are a folder: ${[...names].join(', ')}`);
}
