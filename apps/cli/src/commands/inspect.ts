/** `winnow inspect`: the contents of a model file, and the memory plan. */
import type { Command } from 'commander';
import type { ModelInfo } from '@winnow/engine';
import { classifyNeurons } from '@winnow/sparse-inference';
import { CapacityError } from '@winnow/tensor';
import type { CommandContext, CommandHost } from '../command-host.js';
import { formatBytes, formatJson, formatTable } from '../format.js';
import { displayName } from '../model-location.js';
import { inspectModel } from '../open-model.js';
import { openSidecar, sidecarSuffix } from '../sparse-files.js';
import { describeSidecar } from '../sparse-report.js';
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
  const command = program.command('inspect').argument('[model]', 'the model; without it the demo model');
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
  await context.out.write(flags.json === true ? formatJson(info) : formatInfo(info));
  const { totalBytes: needed } = info.plan;
  if (flags.memory !== undefined && needed > flags.memory) {
    throw new CapacityError({ resource: 'memory plan', needed, available: flags.memory, unit: 'bytes' });
  }
}

async function inspectSidecar(path: string, flags: LoadFlags, { out, signal }: CommandContext): Promise<void> {
  const sidecar = await openSidecar(path, signal);
  if (flags.json !== true) {
    await out.write(describeSidecar(path, sidecar, maxActiveOf(flags)));
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
  const sections: [title: string, rows: string[][]][] = [
    [
      'model',
      [
        ['name', name],
        ['format', format],
        ['tensors', `${tensors.length}, ${formatBytes(tensorBytes)}`],
      ],
    ],
    ['config', rowsOf(config)],
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

function shortValue(value: unknown): string {
  const text = typeof value === 'string' ? JSON.stringify(value) : formatJson(value).trimEnd();
  return text.length <= maxValueLength ? text : `${text.slice(0, maxValueLength)}… (${text.length} characters)`;
}
