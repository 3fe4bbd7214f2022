/** Which ops a backend supports with which dtypes, as data and as a page. */
import { cacheDTypes, opSpecs, weightDTypes, type Backend, type OpSpec } from '@winnow/ops';
import type { DType } from '@winnow/tensor';

/** `true`, or the reason why not: by op and variant. The variant is the dtype of weights or caches, else `f32`. */
export type SupportTable = Readonly<Record<string, Readonly<Record<string, true | string>>>>;

/** Tensors whose dtype makes the variants of an op. */
function variantTensors(spec: OpSpec): { names: readonly string[]; dtypes: readonly DType[] } {
  const tensors = { ...spec.outputs, ...spec.inputs };
  const names = Object.keys(tensors).filter((name) => tensors[name].dtypes.length > 1);
  const lists = names.map((name) => tensors[name].dtypes).sort((a, b) => b.length - a.length);
  return { names, dtypes: lists[0] ?? ['f32'] };
}

/** Whether a tensor may have a dtype; those that may not are left out of the question. */
function takes({ inputs, outputs }: OpSpec, name: string, dtype: DType): boolean {
  return (inputs[name] ?? outputs[name]).dtypes.includes(dtype);
}

/** Asks a backend about every op and variant. */
export function supportTable(backend: Pick<Backend, 'supports'>): SupportTable {
  return Object.fromEntries(
    opSpecs.map((spec) => {
      const { names, dtypes } = variantTensors(spec);
      const attributes = Object.fromEntries(
        Object.entries(spec.attributes).map(([name, { default: value, values }]) => [name, value ?? values?.[0] ?? 1]),
      );
      const answers = dtypes.map((dtype): [string, true | string] => {
        const answer = backend.supports(spec.name, {
          dtypes: Object.fromEntries(names.filter((name) => takes(spec, name, dtype)).map((name) => [name, dtype])),
          attributes,
        });
        return [dtype, answer.supported ? true : answer.reason];
      });
      return [spec.name, Object.fromEntries(answers)];
    }),
  );
}

/** The table of a backend that has every kernel. */
export function fullSupport(): SupportTable {
  return supportTable({ supports: () => ({ supported: true }) });
}

/** The difference of two tables, one line per op and variant; reasons may differ. */
export function compareSupport(actual: SupportTable, expected: SupportTable): string[] {
  const differences: string[] = [];
  for (const op of new Set([...Object.keys(actual), ...Object.keys(expected)])) {
    const [found, wanted] = [actual[op] ?? {}, expected[op] ?? {}];
    for (const variant of new Set([...Object.keys(found), ...Object.keys(wanted)])) {
      if ((found[variant] === true) === (wanted[variant] === true)) continue;
      const reason = found[variant] === true ? 'supported' : `not supported: ${found[variant] ?? 'unknown'}`;
      differences.push(`${op} ${variant}: ${reason}, which the expected table does not say`);
    }
  }
  return differences;
}

/** The page of all ops: a table with a column per backend, then the shapes. Markdown as the formatter writes it. */
export function supportMarkdown(backends: readonly { readonly name: string; readonly table: SupportTable }[]): string {
  const rows = opSpecs.map(({ name }) => [`\`${name}\``, ...backends.map(({ table }) => summary(table[name] ?? {}))]);
  const shapes = opSpecs.map(({ name, inputs, outputs }) => {
    return [`- \`${name}\``, `  - takes ${shapesOf(inputs)}`, `  - gives ${shapesOf(outputs)}`];
  });
  const lines = [
    '# Ops',
    '',
    'Every op of `@winnow/ops` and the dtypes of weights or caches that each backend has kernels for. Written by',
    '`pnpm --filter @winnow/conformance ops-table`; a test keeps it current.',
    '',
    ...alignedTable([['op', ...backends.map(({ name }) => name)], ...rows]),
    '',
    '## Dtypes',
    '',
    `- weights: ${weightDTypes.join(', ')}`,
    `- caches: ${cacheDTypes.join(', ')}`,
    '',
    '## Shapes',
    '',
    'One letter per axis; a letter that appears twice in an op is the same size. `...` is any number of axes.',
    '',
    ...shapes.flat(),
    '',
  ];
  return lines.join('\n');
}

function alignedTable([header, ...rows]: readonly (readonly string[])[]): string[] {
  const widths = header.map((_, column) => Math.max(3, ...[header, ...rows].map((row) => row[column].length)));
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell, column) => cell.padEnd(widths[column])).join(' | ')} |`;
  return [line(header), line(widths.map((width) => '-'.repeat(width))), ...rows.map(line)];
}

function shapesOf(tensors: OpSpec['inputs'] | OpSpec['outputs']): string {
  return Object.entries(tensors)
    .map(([name, tensor]) => {
      const marks = [
        'optional' in tensor && tensor.optional === true ? 'optional' : '',
        'updates' in tensor && tensor.updates === true ? 'in place' : '',
        'mayAlias' in tensor && tensor.mayAlias !== undefined ? `may be ${tensor.mayAlias}` : '',
      ].filter((mark) => mark !== '');
      return `${name} \`[${tensor.shape}]\`${marks.length === 0 ? '' : ` (${marks.join(', ')})`}`;
    })
    .join(', ');
}

function summary(variants: Readonly<Record<string, true | string>>): string {
  const names = Object.keys(variants);
  const missing = names.filter((name) => variants[name] !== true);
  if (missing.length === 0) return names.length === 1 ? 'yes' : `all ${names.length}`;
  if (missing.length === names.length) return 'no';
  return `${names.length - missing.length} of ${names.length}, not ${missing.join(', ')}`;
}
