/** `winnow inspect`: the contents of a model file, and the memory plan. */
import type { Command } from 'commander';
import type { ModelInfo } from '@winnow/engine';
import { classifyNeurons } from '@winnow/sparse-inference';
import { CapacityError, numElements } from '@winnow/tensor';
import type { CommandContext, CommandHost } from './command-host.js';
import { formatBytes, formatCount, formatInteger, formatJson, formatPercent, formatTable } from '../terminal/format.js';
import { displayName } from '../models/model-location.js';
import { inspectModel } from '../models/open-model.js';
import { openSidecar, sidecarSuffix } from '../models/sparse-files.js';
import { describeSidecar } from '../terminal/sparse-report.js';
import { describe } from '../flags/help.js';
import { maxActiveOf } from '../flags/engine-options.js';
import {
  addModelOption,
  addOutputOptions,
  addPlanOptions,
  addSparseOptions,
  chooseModel,
  type LoadFlags,
} from '../flags/load.js';

const examples = `
Examples:
  $ winnow inspect
  $ winnow inspect model.gguf -c 8192 --kv-dtype f16
  $ winnow inspect ./model-folder --json
  $ winnow inspect model.sparse.safetensors

Reads headers only, never the weights, so it is quick for models of any size and over HTTP. For a calibration
(winnow calibrate) it prints a report with a line and a bar per layer.
`;

const maxValueLength = 100;

export function registerInspect(program: Command, host: CommandHost): void {
  const command = program.command('inspect').argument('[model]', 'the model (default: the demo model)');
  addOutputOptions(addSparseOptions(addPlanOptions(addModelOption(command))), 'print one JSON object');
  describe(command, "Prints a model's metadata, tensors and memory plan.", examples);
  command.action((model: string | undefined, flags: LoadFlags) =>
    host.run(flags, (context) => inspect(chooseModel(model, flags.model), flags, context)),
  );
}

async function inspect(modelName: string | undefined, flags: LoadFlags, context: CommandContext): Promise<void> {
  if (modelName?.endsWith(sidecarSuffix) === true) return inspectSidecar(modelName, flags, context);
  const read = await inspectModel(modelName, flags, context);
  const info = { ...read, name: displayName(modelName, read.name) };
  if (flags.json === true) await context.out.write(formatJson(info));
  else await context.out.writeTables(formatInfo(info));
  const { totalBytes: needed } = info.plan;
  if (flags.memory !== undefined && needed > flags.memory) {
    throw new CapacityError({ resource: 'memory plan', needed, available: flags.memory, unit: 'bytes' });
  }
}

async function inspectSidecar(path: string, flags: LoadFlags, { out, signal }: CommandContext): Promise<void> {
  const sidecar = await openSidecar(path, signal);
  if (flags.json !== true) {
    await out.writeTables(describeSidecar(path, sidecar, await maxActiveOf(flags)));
    return;
  }
  const layers = sidecar.layers.map(({ predictor, downNorms: _norms, frequencies, ...rest }) => {
    const { hot, warm, cold } = classifyNeurons(frequencies);
    const neurons = { hot: hot.length, warm: warm.length, cold: cold.length };
    return { ...rest, predictor: predictor.kind, neurons };
  });
  await out.write(formatJson({ name: path, modelHash: sidecar.modelHash, config: sidecar.config, layers }));
}

function formatInfo({ name, format, config, plan, metadata, tensors }: ModelInfo): string {
  const tensorBytes = tensors.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  const numParameters = tensors.reduce((sum, { shape }) => sum + numElements(shape), 0);
  const sections: [title: string, rows: string[][]][] = [
    [
      'model',
      [
        ['name', name],
        ['format', format],
        ['parameters', formatCount(numParameters)],
        ['weights', `${formatBytes(tensorBytes)}, ${dtypeShares(tensors, tensorBytes)}`],
        ['tensors', formatInteger(tensors.length)],
      ],
    ],
    ['config', Object.entries(config).map(([key, value]) => [key, readable(value)])],
    [
      `memory plan for ${plan.contextSize} tokens of context`,
      [
        ['weights', formatBytes(plan.weightsBytes)],
        ...weightRows(plan),
        ['keys and values', `${formatBytes(plan.kvBytes)} (${formatBytes(plan.kvBytesPerToken)} per token)`],
        ...tierRows(plan),
        ['activations', formatBytes(plan.activationBytes)],
        ['total', formatBytes(plan.totalBytes)],
      ],
    ],
    ['metadata', rowsOf(metadata)],
    [
      'tensors',
      tensors.map((tensor) => [
        tensor.name,
        tensor.dtype,
        `[${tensor.shape.join(', ')}]`,
        formatBytes(tensor.sizeBytes),
      ]),
    ],
  ];
  return sections
    .map(([title, rows]) => `${title}\n${formatTable(rows).replaceAll(/^/gm, '  ').trimEnd()}\n`)
    .join('\n');
}

/** Placement of weights beyond the memory budget. */
function weightRows({ weightTiers }: ModelInfo['plan']): string[][] {
  if (weightTiers === undefined) return [];
  const { kind, numItems, numSlots, numPinned, residentBytes, slotBytes, warmBytes, stagingBytes } = weightTiers;
  const { coldBytes, copyBytes } = weightTiers;
  return [
    ['  always in memory', formatBytes(residentBytes)],
    [
      '  hot: in slots',
      `${formatBytes(slotBytes)} for ${numSlots} of ${numItems} ${kind}s, ${numPinned} of them pinned`,
    ],
    ['  warm: host memory', formatBytes(warmBytes)],
    ['  read buffers', formatBytes(stagingBytes)],
    copyBytes > 0 ? ['  cold: in 4 bits', formatBytes(copyBytes)] : ['  cold: in the file', formatBytes(coldBytes)],
  ];
}

/** Placement of keys and values when the context is full. */
function tierRows({ tiers }: ModelInfo['plan']): string[][] {
  if (tiers === undefined) return [];
  return [
    ['  hot: backend memory', formatBytes(tiers.hotBytes)],
    ['  staging buffers', formatBytes(tiers.chunkBytes)],
    ['  warm: host memory', formatBytes(tiers.warmBytes)],
    ...(tiers.residentBytes > 0 ? [['  page selection metadata', formatBytes(tiers.residentBytes)]] : []),
    ['  cold: in files', formatBytes(tiers.coldBytes)],
  ];
}

function rowsOf(values: object): string[][] {
  return Object.entries(values).map(([key, value]) => [key, shortValue(value)]);
}

/** The dtypes of the weights by their share of the bytes. */
function dtypeShares(tensors: ModelInfo['tensors'], totalBytes: number): string {
  const bytesOf = new Map<string, number>();
  for (const { dtype, sizeBytes } of tensors) bytesOf.set(dtype, (bytesOf.get(dtype) ?? 0) + sizeBytes);
  const shares = [...bytesOf].toSorted(([, a], [, b]) => b - a);
  if (shares.length === 1) return String(shares[0]?.[0]);
  return shares.map(([dtype, bytes]) => `${dtype} ${formatPercent(bytes / totalBytes)}`).join(', ');
}

/** Settings as a reader writes them: integers in groups, texts without quotes. */
function readable(value: unknown): string {
  if (typeof value === 'string') return value;
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  return Number.isSafeInteger(value) ? formatInteger(value as number) : shortValue(value);
}

function shortValue(value: unknown): string {
  const text = typeof value === 'string' ? JSON.stringify(value) : formatJson(value).trimEnd();
  return text.length <= maxValueLength ? text : `${text.slice(0, maxValueLength)}… (${text.length} characters)`;
}
