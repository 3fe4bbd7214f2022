/** Writes `docs/models.md` from the architectures. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { repoRoot } from '@winnow/test-utils';
import { architectures } from '../src/index.js';

/** Which golden models prove which architecture; the engine's tests run them. */
const namesIn = (file: string): Readonly<Record<string, readonly string[]>> =>
  JSON.parse(readFileSync(join(repoRoot, 'packages', 'engine', 'test', file), 'utf8')) as Record<string, string[]>;
const goldens = { ...namesIn('golden-names.json'), ...namesIn('encoder-golden-names.json') };

function code(names: readonly string[]): string {
  return names.map((name) => `\`${name}\``).join(', ') || '-';
}

function table(rows: readonly (readonly string[])[]): string {
  const [head = []] = rows;
  const widths = head.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  const line = (row: readonly string[]): string =>
    `| ${row.map((cell, column) => cell.padEnd(widths[column] as number)).join(' | ')} |`;
  const rule = line(widths.map((width) => '-'.repeat(width)));
  return [line(head), rule, ...rows.slice(1).map(line)].join('\n');
}

export function modelsPage(): string {
  const rows = architectures.map(({ name, models = '-', ggufNames, hubNames }) => [
    `\`${name}\``,
    models,
    code(ggufNames),
    code(hubNames),
    code(goldens[name] ?? []),
  ]);
  const limits = architectures.flatMap(({ name, limits = [] }) => limits.map((limit) => `- \`${name}\`: ${limit}`));
  return `# Models

Every architecture of \`@winnow/models\`, from GGUF files and from Hugging Face folders. Written by
\`pnpm --filter @winnow/models models-table\`; a test keeps it current.

${table([['architecture', 'models', '`general.architecture`', '`model_type`', 'goldens'], ...rows])}

A golden is a tiny model of random weights whose log-probabilities an independent float64 pass gives: the engine stays
within 5e-4 of them with f32 weights and cache, and chooses the same 24 tokens, on the reference and on the WebAssembly
backend, from both formats, with the prompt in steps of 1, 7 and all tokens. Of the encoders (\`bert\`, \`nomic-bert\`,
\`modern-bert\`) it has vectors of texts, under the same limit.

Weights are read in every type that [ops.md](ops.md) lists: f32, f16, bf16 and the block formats from GGUF files, f32, f16,
bf16 and f64 from folders. Quantized folders (\`quantization_config\`) are refused. ONNX exports in folders give the same
weights, of 8 and 4 bits too; see [conversion](guides/conversion.md), also for adapters and for converting.

## Known limits

Files of other architectures, tensors that an architecture does not know, and settings that would change the result and
are not supported are refused with an error that names them.

${limits.join('\n')}
`;
}
