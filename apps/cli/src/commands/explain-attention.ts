/** `winnow explain-attention`: which keys a policy visits, and their softmax mass. */
import type { Command } from 'commander';
import { baseConfiguration, captureAttention, createVisitMaps, openOptionsOf, type VisitMap } from '@winnow/evaluation';
import {
  formatAttention,
  formatPolicy,
  parseAttention,
  resolvePolicy,
  type AttentionSpec,
} from '@winnow/sparse-attention';
import { withCalculator } from '../models/calculator.js';
import type { CommandContext, CommandHost } from './command-host.js';
import { UsageError } from '../errors/errors.js';
import { withoutPolicies } from '../flags/engine-options.js';
import { chosenAttention } from '../models/policy-files.js';
import { formatJson, formatPercent, formatTable } from '../terminal/format.js';
import { createModelOpener, tokensOf } from '../models/model-evaluation.js';
import { displayName } from '../models/model-location.js';
import { readText, type TextFlags } from '../terminal/read-text.js';
import { addGroup, choiceOption, flag, numberOption, numberRules, svgOption } from '../flags/builders.js';
import { describe } from '../flags/help.js';
import {
  addModelOption,
  addOutputOptions,
  addAttentionOptions,
  addLoadOptions,
  chooseModel,
  textOptions,
  type LoadFlags,
} from '../flags/load.js';
import { parsePositions } from '../flags/parse-values.js';
import { writeOutputFile } from '../terminal/write-file.js';

interface ExplainFlags extends LoadFlags, TextFlags {
  readonly out: string;
  readonly phase?: 'prefill' | 'decode';
  readonly layers?: string;
  readonly heads?: string;
  readonly cells: number;
  readonly tokens: number;
}

const examples = `
Examples:
  $ winnow explain-attention -p 'The code of Alice is 31407. What is the code of Alice?' --out picture.svg
  $ winnow explain-attention model.gguf -f text.txt --attention sparq:rank=16,topk=64 --layers 0,last --out picture.svg

The text runs through the model with dense attention, and the policy is applied to its queries, keys and values. Blue:
visited (darker: more softmax mass); red: not visited although dense attention has mass there; green: only in a landmark.
The default policy is subquadratic:window=32,block=16.
`;

const defaultPolicy = 'subquadratic:window=32,block=16';

/** Number of tokens of the built-in text, without -p and -f. */
const defaultTokens = 384;

export function registerExplainAttention(program: Command, host: CommandHost): void {
  const command = program.command('explain-attention').argument('[model]', 'the model (default: the demo model)');
  const { count } = numberRules;
  addGroup(addModelOption(command), {
    heading: 'Picture',
    common: [
      ...textOptions('the text'),
      svgOption('SVG file to write').makeOptionMandatory(),
      choiceOption('--phase <phase>', 'phase whose policy is drawn', ['prefill', 'decode'], 'the sparse one'),
      flag('--layers <list>', "layers, such as 0,3,last or 'all' (default: first, middle, last)"),
      flag('--heads <list>', "query heads, such as 0,1,last (default: 'all', at most six)"),
      numberOption('--cells <n>', 'cells per side of a panel', count).default(64),
      numberOption('--tokens <n>', 'maximum number of tokens of the text', count).default(1024),
    ],
  });
  addLoadOptions(addAttentionOptions(command));
  addOutputOptions(command, 'print one JSON object with the figures of each panel');
  describe(command, 'Draws which keys an attention policy visits, per layer and head.', examples);
  command.action((model: string | undefined, flags: ExplainFlags) =>
    host.run(flags, (context) => explain(chooseModel(model, flags.model), flags, context)),
  );
}

/** The phase to draw: by default the one with a sparse policy. */
function phaseOf(
  flags: ExplainFlags,
  spec: AttentionSpec,
  policies: ReturnType<typeof resolvePolicy>,
  warn: (text: string) => void,
): 'prefill' | 'decode' {
  const phase = flags.phase ?? (spec.prefill.kind === 'dense' && spec.decode.kind !== 'dense' ? 'decode' : 'prefill');
  const other = phase === 'prefill' ? 'decode' : 'prefill';
  const isDenseIn = (at: typeof phase): boolean => policies.every((policy) => policy[at].kind === 'dense');
  if (isDenseIn(phase) && !isDenseIn(other)) warn(`the policy is for ${other}: ${phase} is dense`);
  return phase;
}

async function writePicture(
  path: string,
  title: string,
  maps: readonly VisitMap[],
  signal: AbortSignal,
): Promise<void> {
  const { drawVisits } = await import('@winnow/evaluation/plots');
  await writeOutputFile(path, drawVisits({ title, maps }), signal);
}

async function explain(modelName: string | undefined, flags: ExplainFlags, context: CommandContext): Promise<void> {
  const { out, signal, progress, warn } = context;
  const isGiven = flags.prompt !== undefined || flags.file !== undefined;
  const text = isGiven ? await readText(context.io, flags, signal) : undefined;
  const { open, location } = await createModelOpener(modelName, withoutPolicies(flags), context);
  const spec = (await chosenAttention(modelName, flags, location, context)) ?? parseAttention(defaultPolicy);
  const numTokens = isGiven ? flags.tokens : Math.min(flags.tokens, defaultTokens);
  await using model = await open({ ...openOptionsOf(baseConfiguration, numTokens), trace: { attention: true } });
  const { numLayers, numHeads } = model.config;
  const layers = listOf('--layers', flags.layers, numLayers, [0, Math.floor(numLayers / 2), numLayers - 1]);
  const firstHeads = Array.from({ length: Math.min(6, numHeads) }, (_, i) => i);
  const heads = listOf('--heads', flags.heads, numHeads, firstHeads);
  const tokens = tokensOf(model, text, numTokens);
  const { captures, skippedLayers } = await captureAttention(model, tokens, { layers, signal });
  if (skippedLayers.length > 0)
    warn(`layers ${skippedLayers.join(', ')} have sliding-window attention and are skipped`);
  if (captures.length === 0) throw new UsageError('--layers: expected layers with full attention, got none');
  const policies = resolvePolicy(spec, { numLayers });
  const phase = phaseOf(flags, spec, policies, warn);
  const maps: VisitMap[] = [];
  await withCalculator(flags, async (backend) => {
    for (const [index, capture] of captures.entries()) {
      progress.show('layers', index, captures.length, 'layers');
      const policy = policies[capture.layer ?? 0]?.[phase] ?? spec[phase];
      maps.push(...(await createVisitMaps(policy, capture, { heads, size: flags.cells, backend })));
    }
  });
  progress.clear();
  const name = displayName(modelName, model.name);
  const totals = totalOf(maps);
  const title =
    `${name}, ${tokens.length} tokens, ${phase} ${formatPolicy(spec[phase])}: ` +
    `${formatPercent(totals.density)} of the pairs, ${formatPercent(totals.mass)} of the mass`;
  await writePicture(flags.out, title, maps, signal);
  const panels = maps.map((map, index) => ({
    layer: captures[Math.floor(index / heads.length)]?.layer ?? 0,
    head: map.head,
    pairs: map.pairs,
    densePairs: map.densePairs,
    density: map.pairs / map.densePairs,
    mass: map.mass,
  }));
  if (flags.json === true) {
    const attention = formatAttention(spec);
    return out.write(
      formatJson({ model: name, attention, phase, tokens: tokens.length, file: flags.out, ...totals, panels }),
    );
  }
  const rows = panels.map((panel) => [
    `${panel.layer}`,
    `${panel.head}`,
    formatPercent(panel.density),
    formatPercent(panel.mass),
  ]);
  await out.writeTables(`${title}\n${formatTable([['layer', 'head', 'pairs', 'mass'], ...rows])}`);
}

function totalOf(maps: readonly VisitMap[]): { readonly density: number; readonly mass: number } {
  const sum = (pick: (map: VisitMap) => number): number => maps.reduce((total, map) => total + pick(map), 0);
  return {
    density: sum((map) => map.pairs) / sum((map) => map.densePairs),
    mass: sum((map) => map.mass) / maps.length,
  };
}

/** Unique indices below `count`, ascending. */
function listOf(flag: string, text: string | undefined, count: number, fallback: readonly number[]): number[] {
  const list = text === undefined ? fallback : parsePositions(flag, text, count);
  return [...new Set(list)].toSorted((a, b) => a - b);
}
