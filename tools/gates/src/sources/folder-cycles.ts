/**
 * Folders of a package or beside them, on every level, do not import from each other in a circle, whether directly or through other
 * folders and files beside them. Tests are exempt. Which folder is below which is the matter of folders.ts.
 */
import { readFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import { moduleUses } from '../workspace/imports.ts';
import { isCpp, isFixture, isScript, listFiles, type Place } from '../workspace/workspace.ts';

/** An import from one child of a folder to another one: a folder, whose name ends in `/`, or a file. */
interface Edge {
  readonly to: string;
  readonly file: string;
  readonly target: string;
}

/** The imports between the children of one folder, by child. */
type Graph = Map<string, Map<string, Edge>>;

const extension = /\.([cm]?[jt]sx?|h|cpp)$/;
const testPattern = /(^|\/)(test|tests|bench)\/|\.test(-d)?\.[cm]?tsx?$/;
/** AssemblyScript has decorators on functions, which no parser of TypeScript accepts. */
const assemblyImport = /^(?:import|export)\b[^'";]*\bfrom '(\.[^']+)';|^import '(\.[^']+)';/gm;
const cppInclude = /^\s*#include "([^"]+)"/gm;

export function checkFolderCycles(places: readonly Place[]): string[] {
  return places.flatMap((entry) => {
    const problems: string[] = [];
    for (const [folder, graph] of graphsOf(entry.folder)) {
      for (const cycle of cyclesOf(graph)) {
        const steps = cycle.map(({ file, target }) => `${file} imports ${target}`);
        const place = posix.join(entry.location, folder);
        problems.push(`${place}: ${cycle.map(({ to }) => to).join(', ')} import from each other: ${steps.join('; ')}`);
      }
    }
    return problems;
  });
}

/** The imports inside a package, by the folder whose children they connect. */
function graphsOf(root: string): Map<string, Graph> {
  const graphs = new Map<string, Graph>();
  const isChecked = (path: string): boolean =>
    (isScript(path) || isCpp(path)) && !isFixture(path) && !testPattern.test(path);
  for (const file of listFiles(root, isChecked)) {
    for (const specifier of relativeImports(file, readFileSync(join(root, file), 'utf8'))) {
      const target = posix.normalize(posix.join(posix.dirname(file), specifier));
      if (!target.startsWith('..') && !testPattern.test(target)) addEdge(graphs, file, target);
    }
  }
  return graphs;
}

function relativeImports(file: string, text: string): string[] {
  const inText = (pattern: RegExp): string[] => [...text.matchAll(pattern)].map((match) => match[1] ?? match[2] ?? '');
  if (isCpp(file)) return inText(cppInclude);
  if (/(^|\/)assembly\//.test(file)) return inText(assemblyImport);
  const specifiers = moduleUses(file, text).map(({ specifier }) => specifier);
  return specifiers.filter((specifier) => specifier.startsWith('.'));
}

function addEdge(graphs: Map<string, Graph>, file: string, target: string): void {
  const [from, to] = [file.split('/'), target.split('/')];
  let depth = 0;
  while (depth < from.length - 1 && from[depth] === to[depth]) depth++;
  const childOf = (path: readonly string[]): string =>
    depth === path.length - 1 ? (path[depth] ?? '').replace(extension, '') : `${path[depth]}/`;
  const [source, child] = [childOf(from), childOf(to)];
  if (source === child) return;
  const folder = from.slice(0, depth).join('/');
  const graph: Graph = graphs.get(folder) ?? new Map();
  graphs.set(folder, graph);
  const edges = graph.get(source) ?? new Map<string, Edge>();
  graph.set(source, edges);
  if (!edges.has(child)) edges.set(child, { to: child, file, target });
}

/** A shortest cycle through each folder that has one; folders of a cycle are not reported again. */
function cyclesOf(graph: Graph): Edge[][] {
  const cycles: Edge[][] = [];
  const reported = new Set<string>();
  for (const child of [...graph.keys()].sort()) {
    if (!child.endsWith('/') || reported.has(child)) continue;
    const cycle = shortestCycle(graph, child);
    if (cycle === undefined) continue;
    cycles.push(cycle);
    for (const { to } of cycle) reported.add(to);
  }
  return cycles;
}

/** Breadth-first search for a way from a child back to itself. */
function shortestCycle(graph: Graph, start: string): Edge[] | undefined {
  const ways = new Map<string, Edge[]>([[start, []]]);
  // a map visits what is added during its iteration
  for (const [child, way] of ways) {
    for (const edge of graph.get(child)?.values() ?? []) {
      if (edge.to === start) return [...way, edge];
      if (!ways.has(edge.to)) ways.set(edge.to, [...way, edge]);
    }
  }
  return undefined;
}
