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
  /** Whether the file has Winnow's figure with native kernels, with those of WebAssembly, or with both in turns. */
  readonly kernels: 'both' | 'native' | 'WebAssembly';
}

interface Machine {
  readonly name: string;
  /** Folder below docs/benchmarks. */
  readonly folder: string;
}

const zen5 = { name: 'EPYC (Zen 5)', folder: '2026-11-24-epyc-2-cores' };
const zen5Again = { name: 'EPYC (Zen 5)', folder: '2026-11-29-zen5-2-cores' };
const zen5Latest = { name: 'EPYC (Zen 5)', folder: '2026-11-30-zen5-2-cores' };
const zen4 = { name: 'EPYC (Zen 4)', folder: '2026-11-29-epyc-2-cores' };
const xeon = { name: 'Xeon', folder: '2026-11-21-xeon-2-cores' };
const llama = 'tinyllama-1.1b q8_0';
const smol = 'smollm2-135m q8_0, 2 threads, Chromium 156';
const prefillOfDecode = 'prefill=streaming:window=1024,sinks=4';
const native = { peer: 'node-llama-cpp', kernels: 'both' } as const;
const onXeon = { peer: 'node-llama-cpp', machine: xeon, kernels: 'WebAssembly' } as const;
const inBrowser = { file: 'browser', peer: 'wllama', machine: xeon, kernels: 'WebAssembly' } as const;
const wasm = 'wasm kernels';

const rows: readonly RowSource[] = [
  ...[128, 2048].map((length) => ({
    ...{ label: `1.1B, decode at ${length} tokens`, file: 'decode', suite: 'decode', machine: zen4, ...native },
    caseName: `${llama}, 2 threads @${length}`,
  })),
  {
    ...{ label: '1.1B, decode at 8192 tokens, dense', file: 'decode-long', suite: 'decode', machine: zen5Again },
    ...{ peer: 'node-llama-cpp', kernels: 'native', caseName: `${llama}, 2 threads @8192` },
  },
  {
    ...{ label: '1.1B, decode at 8192 tokens, dense', file: 'decode-dense', suite: 'decode', ...onXeon },
    caseName: `${llama}, ${prefillOfDecode};decode=dense, 2 threads @8192`,
  },
  {
    ...{ label: '1.1B, prefill of 128 tokens', file: 'prefill', suite: 'prefill', machine: zen5, ...native },
    caseName: `${llama}, 2 threads @128`,
  },
  {
    ...{ label: '1.1B, prefill of 512 tokens', file: 'prefill-peers', suite: 'prefill', machine: zen4, ...native },
    caseName: `${llama}, 2 threads @512`,
  },
  {
    ...{ label: '4 layers of it, prefill of 8192 tokens, dense', suite: 'prefill', machine: zen4, ...native },
    ...{ file: 'prefill-layers', caseName: 'tinyllama-1.1b/4 q8_0, 2 threads @8192' },
  },
  {
    ...{ label: '1.1B, prefill of 8192 tokens, `subquadratic:window=256`', suite: 'prefill', machine: zen5, ...native },
    ...{ file: 'prefill-sparse', caseName: `${llama}, prefill=subquadratic:window=256, 2 threads @8192` },
  },
  ...['streaming:window=128,sinks=4', 'page-topk:budget=16'].map((policy) => ({
    ...{ label: `1.1B, decode at 8192 tokens, \`${policy}\``, file: 'decode-sparse', suite: 'decode' },
    ...{ machine: zen5Latest, ...native },
    caseName: `${llama}, ${prefillOfDecode};decode=${policy}, 2 threads @8192`,
  })),
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
  { label, machine, file, suite, caseName, peer, kernels }: RowSource,
  { runs }: Results,
): readonly (readonly string[])[] {
  const figures = runs.flatMap((run) => run.figures);
  const valueOf = (name: string, ratioOf: string): number => find(figures, file, suite, name, ratioOf).value;
  const own = valueOf(caseName, peer);
  const other = valueOf(`${caseName}: ${peer}`, 'winnow');
  const line = (name: string, value: number): string[] => {
    return [label, name, machine.name, speed(value), `${speed(other)} (${peer})`, (value / other).toFixed(2)];
  };
  if (kernels !== 'both') return [line(kernels, own)];
  return [line('native', own), line('WebAssembly', valueOf(`${caseName}: ${wasm}`, 'winnow'))];
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
