/** Tables of the root README, generated from results under docs/benchmarks and written between two markers. */
import type { Figure } from '../harness/figure.js';
import type { Results } from '../results/results.js';

/** A row: one case of one file, in which Winnow and a peer were measured in turns. */
interface RowSource {
  readonly label: string;
  /** File name in the folder of the machine, without extension. */
  readonly file: string;
  readonly suite: string;
  readonly caseName: string;
  readonly peer: string;
}

const llama = 'tinyllama-1.1b q8_0';
const smol = 'smollm2-135m q8_0, 2 threads, Chromium 156';
const prefillOfDecode = 'prefill=streaming:window=1024,sinks=4';
const sparsePrefill = 'prefill=subquadratic:window=256';
const native = { peer: 'node-llama-cpp' };
const inBrowser = { file: 'browser', peer: 'wllama' };

const rows: readonly RowSource[] = [
  ...[128, 2048].map((length) => ({
    ...{ label: `1.1B, decode at ${length} tokens`, file: 'decode', suite: 'decode', ...native },
    caseName: `${llama}, 2 threads @${length}`,
  })),
  {
    ...{ label: '1.1B, decode at 8192 tokens, dense', file: 'decode-dense', suite: 'decode', ...native },
    caseName: `${llama}, ${prefillOfDecode};decode=dense, 2 threads @8192`,
  },
  ...['streaming:window=128,sinks=4', 'page-topk:budget=16'].map((policy) => ({
    ...{ label: `1.1B, decode at 8192 tokens, \`${policy}\``, file: 'decode-sparse', suite: 'decode', ...native },
    caseName: `${llama}, ${prefillOfDecode};decode=${policy}, 2 threads @8192`,
  })),
  ...[128, 512].map((length) => ({
    ...{ label: `1.1B, prefill of ${length} tokens`, file: 'prefill', suite: 'prefill', ...native },
    caseName: `${llama}, 2 threads @${length}`,
  })),
  {
    ...{ label: '1.1B, prefill of 8192 tokens, `subquadratic:window=256`', suite: 'prefill', ...native },
    ...{ file: 'prefill-sparse', caseName: `${llama}, ${sparsePrefill}, 2 threads @8192` },
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

/** Reads `<name>.json` of the machine's folder. */
export type ReadResults = (name: string) => Results;

/** @throws {Error} when the case of a row is missing in its file */
export function speedTable(read: ReadResults): string {
  const cells = rows.map(({ label, file, suite, caseName, peer }) => {
    const figures = read(file).runs.flatMap((run) => run.figures);
    const own = find(figures, file, suite, caseName, peer);
    const other = find(figures, file, suite, `${caseName}: ${peer}`, 'winnow');
    return [label, speed(own.value), `${speed(other.value)} (${peer})`, own.ratio.toFixed(2)];
  });
  return formatTable([['tokens/s', 'Winnow', 'peer', 'ratio'], ...cells]);
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

/** In the format of oxfmt: columns as wide as their widest cell. */
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
