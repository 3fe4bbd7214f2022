/** Budgets of lines as a table: how near files, functions, kernels and READMEs are to their limits. Other gates enforce them. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Budget } from '../workspace/budget.ts';
import { documentSizes } from '../workspace/document-sizes.ts';
import { parseFile, walk } from '../workspace/imports.ts';
import { isCpp, isPython, isSource, listFiles, readJson } from '../workspace/workspace.ts';
import { longestCppFunction } from './cpp-functions.ts';
import { countLines, kernelBudgets } from './kernels.ts';
import { longestPythonFunction } from './python-functions.ts';
import { isGenerated, maxFileLines, maxReadmeLines } from './structure.ts';

interface LintSettings {
  readonly rules: Readonly<Record<string, unknown>>;
  readonly overrides: readonly {
    readonly files: readonly string[];
    readonly rules: Readonly<Record<string, unknown>>;
  }[];
}

interface Longest {
  readonly lines: number;
  readonly place: string;
}

const functionTypes = new Set(['FunctionDeclaration', 'FunctionExpression', 'ArrowFunctionExpression']);
const rule = 'max-lines-per-function';

/** The limit of the linter, and the files that it exempts by name. */
function functionLimit(root: string): { readonly limit: number; readonly exempt: ReadonlySet<string> } {
  const { rules, overrides } = readJson<LintSettings>(join(root, '.oxlintrc.json'));
  const [, { max: limit }] = rules[rule] as [string, { max: number }];
  const exempt = overrides.filter((override) => override.rules[rule] === 'off').flatMap(({ files }) => files);
  return { limit, exempt: new Set(exempt) };
}

function numLinesOf(text: string): number {
  return text.trimEnd().split('\n').length;
}

/** The longest function of a file, with all that it contains. */
export function longestFunction(path: string, text: string): Longest {
  if (isCpp(path) || isPython(path)) {
    const { lines, line } = isCpp(path) ? longestCppFunction(text) : longestPythonFunction(text);
    return { lines, place: `${path}:${line}` };
  }
  const lineStarts = [0];
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) lineStarts.push(at + 1);
  const lineOf = (offset: number): number => {
    let [low, high] = [0, lineStarts.length];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if ((lineStarts[middle] as number) <= offset) low = middle;
      else high = middle;
    }
    return low + 1;
  };
  let longest: Longest = { lines: 0, place: path };
  walk(parseFile(path, text).program, (node) => {
    if (!functionTypes.has(node.type)) return;
    const first = lineOf(node.start);
    const lines = lineOf(node['end'] as number) - first + 1;
    if (lines > longest.lines) longest = { lines, place: `${path}:${first}` };
  });
  return longest;
}

const longer = (a: Longest, b: Longest): Longest => (b.lines > a.lines ? b : a);

/** @param locations of packages; empty for the whole workspace */
export function lineBudgets(root: string, locations: readonly string[]): Budget[] {
  const isHere = (path: string): boolean =>
    locations.length === 0 || locations.some((location) => path.startsWith(`${location}/`));
  const files = listFiles(root, isHere);
  const { limit, exempt } = functionLimit(root);
  const none: Longest = { lines: 0, place: '' };
  let [longestFile, longest, longestReadme] = [none, none, none];
  for (const path of files) {
    if (/^(packages|apps)\/[^/]+\/README\.md$/.test(path)) {
      longestReadme = longer(longestReadme, { lines: numLinesOf(readFileSync(join(root, path), 'utf8')), place: path });
    }
    if (!isSource(path) || isGenerated(path)) continue;
    const text = readFileSync(join(root, path), 'utf8');
    longestFile = longer(longestFile, { lines: numLinesOf(text), place: path });
    if (!exempt.has(path)) longest = longer(longest, longestFunction(path, text));
  }
  const numExempt = [...exempt].filter(isHere).length;
  return [
    { name: 'lines of the longest file', value: longestFile.lines, limit: maxFileLines, place: longestFile.place },
    { name: 'lines of the longest function', value: longest.lines, limit, place: longest.place },
    { name: 'files exempt from this limit', value: numExempt, limit: 0, place: '.oxlintrc.json' },
    {
      name: 'lines of a package README',
      value: longestReadme.lines,
      limit: maxReadmeLines,
      place: longestReadme.place,
    },
    ...(locations.length === 0 ? documentSizes(root) : []),
    ...kernelBudgets
      .filter(({ folder }) => isHere(`${folder}/`))
      .map((budget) => ({
        name: budget.name,
        value: countLines(root, budget),
        limit: budget.limit,
        place: budget.folder,
      })),
  ];
}

/** One line of the table, aligned with others. */
export function budgetLine({ name, value, limit, place }: Budget): string {
  const verdict = value <= limit ? 'ok  ' : 'OVER';
  const figures = `${String(value).padStart(7)} of ${String(limit).padStart(6)}`;
  return `  ${verdict}   ${name.padEnd(31)} ${figures}  ${place}`.trimEnd();
}
