/** Tables of the root README, generated from results under docs/benchmarks and written between two markers. */
import type { Figure } from '../harness/figure.js';
import type { Results } from '../results/results.js';

/** A row: one case of one file, in which Winnow and a peer were measured in turns. */
interface RowSource {
  readonly label: string;
  readonly machine: Machine;
  /** File name in the folder of the machine, without extension. */
  readonly file: string;
  readonly suite: string;
  readonly caseName: string;
  readonly peer: string;
  /** Whether the file has Winnow's figure with the kernels of WebAssembly only, or also with native ones in turns. */
  readonly kernels: 'both' | 'WebAssembly';
  /** The name of Winnow with another policy than that of the case, measured in turns with it. */
  readonly contender?: string;
}

interface Machine {
  readonly name: string;
  /** Folder below docs/benchmarks. */
  readonly folder: string;
}

const zen4 = { name: 'EPYC (Zen 4)', folder: '2026-11-30-zen4-2-cores' };
const xeon = { name: 'Xeon', folder: '2026-11-21-xeon-2-cores' };
const llama = 'tinyllama-1.1b q8_0';
const smol = 'smollm2-135m q8_0, 2 threads, Chromium 156';
const onZen4 = { peer: 'node-llama-cpp', machine: zen4, kernels: 'both' } as const;
const inBrowser = { file: 'browser', peer: 'wllama', machine: xeon, kernels: 'WebAssembly' } as const;
const wasm = 'wasm kernels';

/** After a windowed prefill of the context, as all of them were measured. */
const decodePolicy = (policy: string): string => `prefill=streaming:window=1024,sinks=4;decode=${policy}`;

const rows: readonly RowSource[] = [
  ...[128, 2048].map((length) => ({
    ...{ label: `1.1B, decode at ${length} tokens`, file: 'decode', suite: 'decode', ...onZen4 },
    caseName: `${llama}, 2 threads @${length}`,
  })),
  ...['dense', 'streaming:window=128,sinks=4', 'page-topk:budget=16'].map((policy) => ({
    label: `1.1B, decode at 8192 tokens, ${policy === 'dense' ? policy : `\`${policy}\``}`,
    ...{ file: 'decode-long', suite: 'decode', ...onZen4 },
    caseName: `${llama}, ${decodePolicy('dense')}, 2 threads @8192`,
    ...(policy === 'dense' ? {} : { contender: decodePolicy(policy) }),
  })),
  ...[128, 512].map((length) => ({
    ...{ label: `1.1B, prefill of ${length} tokens`, file: 'prefill', suite: 'prefill', ...onZen4 },
    caseName: `${llama}, 2 threads @${length}`,
  })),
  {
    ...{ label: '4 layers of it, prefill of 8192 tokens, dense', suite: 'prefill', ...onZen4 },
    ...{ file: 'prefill-layers', caseName: 'tinyllama-1.1b/4 q8_0, 2 threads @8192' },
  },
  {
    ...{ label: '4 layers of it, prefill of 8192 tokens, `subquadratic:window=256`', suite: 'prefill', ...onZen4 },
    file: 'prefill-layers-sparse',
    caseName: 'tinyllama-1.1b/4 q8_0, subquadratic:window=256, 2 threads @8192',
  },
  ...[128, 1024].map((length) => ({
    ...{ label: `135M in Chromium, decode at ${length} tokens`, suite: 'decode', ...inBrowser },
    caseName: `${smol} @${length}`,
  })),
  ...[128, 512].map((length) => ({
    ...{ label: `135M in Chromium, prefill of ${length} tokens`, suite: 'prefill', ...inBrowser },
    caseName: `${smol} @${length}`,
  })),
];

/** Reads `<name>.json` below docs/benchmarks. */
export type ReadResults = (name: string) => Results;

/** @throws {Error} when the case of a row is missing in its file */
export function speedTable(read: ReadResults): string {
  const cells = rows.flatMap((row) => cellsOf(row, read(`${row.machine.folder}/${row.file}`)));
  return formatTable([['tokens/s', 'kernels', 'machine', 'Winnow', 'peer', 'ratio'], ...cells]);
}

/** Cells with native kernels and with those of WebAssembly, as far as measured. */
function cellsOf(
  { label, machine, file, suite, caseName, peer, kernels, contender }: RowSource,
  { runs }: Results,
): readonly (readonly string[])[] {
  const figures = runs.flatMap((run) => run.figures);
  const valueOf = (name: string, ratioOf: string): number => find(figures, file, suite, name, ratioOf).value;
  const own = contender === undefined ? valueOf(caseName, peer) : valueOf(`${caseName}: ${contender}`, 'winnow');
  const other = valueOf(`${caseName}: ${peer}`, 'winnow');
  const line = (name: string, value: number): string[] => {
    return [label, name, machine.name, speed(value), `${speed(other)} (${peer})`, (value / other).toFixed(2)];
  };
  if (kernels !== 'both') return [line(kernels, own)];
  const wasmName = contender === undefined ? wasm : `${contender}, ${wasm}`;
  return [line('native', own), line('WebAssembly', valueOf(`${caseName}: ${wasmName}`, 'winnow'))];
}

function find(figures: readonly Figure[], file: string, suite: string, caseName: string, ratioOf: string): Figure {
  const found = figures.find(
    (figure) => figure.suite === suite && figure.case === caseName && figure.ratioOf === ratioOf,
  );
  if (found?.unit === 'tokens/s') return found;
  throw new Error(`${file}.json: expected a figure of ${suite} in tokens/s for "${caseName}" against ${ratioOf}`);
}

function speed(value: number): string {
  return value < 100 ? value.toFixed(1) : value.toFixed(0);
}

/** Formats a table as oxfmt does: columns are as wide as their widest cell. */
function formatTable([head = [], ...body]: readonly (readonly string[])[]): string {
  const widths = head.map((_, column) => Math.max(3, ...[head, ...body].map((row) => (row[column] ?? '').length)));
  const line = (row: readonly string[]): string =>
    `| ${widths.map((width, column) => (row[column] ?? '').padEnd(width)).join(' | ')} |`;
  return [line(head), line(widths.map((width) => '-'.repeat(width))), ...body.map(line)].join('\n');
}

/**
 * Replaces the text between `<!-- name -->` and `<!-- /name -->`.
 * @throws {Error} when the markers are missing
 */
export function replaceBetween(text: string, name: string, content: string): string {
  const [begin, end] = [`<!-- ${name} -->`, `<!-- /${name} -->`];
  const from = text.indexOf(begin);
  const to = text.indexOf(end);
  if (from < 0 || to < from) throw new Error(`expected the markers ${begin} and ${end}, in this order`);
  return `${text.slice(0, from + begin.length)}\n\n${content}\n\n${text.slice(to)}`;
}
