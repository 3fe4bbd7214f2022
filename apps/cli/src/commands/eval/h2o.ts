/** `winnow eval h2o`: the quality of heavy-hitter memory over its two budgets, and what it caches. */
import type { Command } from 'commander';
import {
  baseConfiguration,
  captureAttention,
  createBaseRows,
  createCachedMaps,
  h2oPolicy,
  measureH2oGrid,
  measureHeavySets,
  openOptionsOf,
  type H2oGridCell,
  type HeavySetReport,
  type CachedMap,
} from '@winnow/evaluation';
import { clampBudgets } from '@winnow/sparse-attention';
import { withCalculator } from '../../models/calculator.js';
import type { CommandContext, CommandHost } from '../command-host.js';
import { formatJson, formatTable } from '../../terminal/format.js';
import { createModelOpener, tokensOf } from '../../models/model-evaluation.js';
import { displayName } from '../../models/model-location.js';
import { readText } from '../../terminal/read-text.js';
import { addGroup, flag, numberOption, numberRules, svgOption } from '../../flags/builders.js';
import { describe } from '../../flags/help.js';
import { addModelOption, addOutputOptions, addLoadOptions, chooseModel, type LoadFlags } from '../../flags/load.js';
import { parseNumber } from '../../flags/parse-values.js';
import { writeOutputFile } from '../../terminal/write-file.js';

interface EvalH2oFlags extends LoadFlags {
  readonly text?: string;
  readonly tokens: number;
  readonly chunk: number;
  readonly sinks: number;
  readonly locals?: string;
  readonly heavies?: string;
  readonly out?: string;
}

const examples = `
Examples:
  $ winnow eval h2o --tokens 1024 --chunk 128 --out cached.svg
  $ winnow eval h2o model.gguf --text book.txt --tokens 8192 --chunk 1024 --locals 64,256 --heavies 64,256,512 --json

The table shows perplexity under h2o divided by that of dense attention, for L local tokens (rows) and H heavy hitters
(columns). For the last pair of budgets it also reports the overlap (Jaccard) with the heavy hitters of a q8_0 cache, and
--out draws the positions cached per layer and KV head.
`;

/** @param evaluation the parent command */
export function registerEvalH2o(evaluation: Command, host: CommandHost): void {
  const command = evaluation.command('h2o').argument('[model]', 'the model (default: the demo model)');
  const { count, fromZero } = numberRules;
  addGroup(addModelOption(command), {
    heading: 'Evaluation',
    common: [
      flag('--text <path>', 'text to evaluate on, - for stdin (default: a built-in text)'),
      numberOption('--tokens <n>', 'number of tokens of the text', count).default(1024),
      numberOption('--chunk <n>', 'tokens per chunk', count).default(128),
      numberOption('--sinks <n>', 'number of first tokens that are always cached', fromZero).default(0),
      flag('--locals <list>', 'numbers of recent tokens to cache (default: 0, 1/8 and 1/4 of a chunk)'),
      flag('--heavies <list>', 'numbers of heavy hitters to cache (default: 0, 1/8, 1/4 and 1/2 of a chunk)'),
      svgOption('write an SVG of the positions that are cached'),
    ],
  });
  addOutputOptions(addLoadOptions(command), 'print one JSON object');
  describe(command, 'Measures heavy-hitter prefill over its budgets.', examples);
  command.action((model: string | undefined, flags: EvalH2oFlags) =>
    host.run(flags, (context) => evaluate(chooseModel(model, flags.model), flags, context)),
  );
}

async function writePicture(
  path: string,
  title: string,
  maps: readonly CachedMap[],
  signal: AbortSignal,
): Promise<void> {
  const { drawCachedMaps } = await import('@winnow/evaluation/plots');
  await writeOutputFile(path, drawCachedMaps({ title, maps }), signal);
}

async function evaluate(modelName: string | undefined, flags: EvalH2oFlags, context: CommandContext): Promise<void> {
  const { out, signal, progress } = context;
  const { chunk, sinks } = flags;
  const share = (part: number): number => Math.floor(chunk * part);
  const locals = budgets('--locals', flags.locals, [0, share(1 / 8), share(1 / 4)]);
  const heavies = budgets('--heavies', flags.heavies, [0, share(1 / 8), share(1 / 4), share(1 / 2)]);
  const drawn = h2oPolicy(chunk, locals.at(-1) ?? 0, heavies.at(-1) ?? 0, sinks);
  const text = flags.text === undefined ? undefined : await readText(context.io, { file: flags.text }, signal);
  const { open } = await createModelOpener(modelName, flags, context);
  await using model = await open({ ...openOptionsOf(baseConfiguration, flags.tokens), trace: { attention: true } });
  const tokens = tokensOf(model, text, flags.tokens);
  const base = await createBaseRows(model, tokens, { signal });
  const cells = await measureH2oGrid({
    open,
    base,
    tokens,
    chunk,
    sinks,
    locals,
    heavies,
    signal,
    onProgress: (policy, done, total) => progress.show(policy, done, total, 'tokens'),
  });
  const { captures, skippedLayers } = await captureAttention(model, tokens, { signal });
  const heavySets: HeavySetReport[] = [];
  const maps: CachedMap[] = [];
  await withCalculator(flags, async (backend) => {
    for (const capture of captures) {
      heavySets.push(await measureHeavySets(drawn, capture, backend));
      if (flags.out !== undefined) maps.push(...(await createCachedMaps(drawn, capture, { backend })));
    }
  });
  progress.clear();
  const name = displayName(modelName, model.name);
  const { local, heavy } = clampBudgets(drawn);
  if (flags.out !== undefined) {
    const title = `${name}, ${tokens.length} tokens: cached by h2o of chunks of ${chunk}, L=${local}, H=${heavy}, ${sinks} sinks`;
    await writePicture(flags.out, title, maps, signal);
  }
  if (flags.json === true) {
    const counts = { tokens: tokens.length, chunk, sinks };
    return out.write(formatJson({ model: name, backend: model.backend, ...counts, cells, heavySets, skippedLayers }));
  }
  const sets = heavySets.map(({ name: layer, betweenRuns, leastBetweenRuns, betweenHeads }) => [
    layer,
    ...[betweenRuns, leastBetweenRuns, betweenHeads].map((value) => value.toFixed(3)),
  ]);
  const head = `${name} on ${model.backend}, ${tokens.length} tokens, chunks of ${chunk}, ${sinks} sinks`;
  await out.writeTables(
    `${head}\n\nPerplexity divided by that of dense attention; mean KLD\n${formatTable(gridRows(cells, locals, heavies))}\n` +
      `Heavy hitters of L=${local}, H=${heavy}: Jaccard similarity\n` +
      formatTable([['layer', 'f32 and q8_0 cache', 'least', 'heads of a layer'], ...sets]),
  );
}

function gridRows(cells: readonly H2oGridCell[], locals: readonly number[], heavies: readonly number[]): string[][] {
  const cellOf = (local: number, heavy: number): string => {
    const divergence = cells.find((cell) => cell.local === local && cell.heavy === heavy)?.divergence;
    if (divergence === undefined) return '-';
    return `${divergence.pplRatio.mean.toFixed(3)} (${divergence.divergence.mean.toFixed(4)})`;
  };
  const rows = locals.map((local) => [`L=${local}`, ...heavies.map((heavy) => cellOf(local, heavy))]);
  return [['', ...heavies.map((heavy) => `H=${heavy}`)], ...rows];
}

/** Unique values, ascending. */
function budgets(flag: string, text: string | undefined, fallback: readonly number[]): number[] {
  const list = text?.split(',').map((word) => parseNumber(flag, word.trim(), numberRules.fromZero)) ?? fallback;
  return [...new Set(list)].toSorted((a, b) => a - b);
}
