/** `winnow eval`: how much attention policies and cache dtypes lose against dense. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Command } from 'commander';
import { makeFolder } from '@winnow/bytes/node';
import type { KvDTypes, Model } from '@winnow/engine';
import {
  createConfigurations,
  defaultKvDTypes,
  defaultPolicies,
  evaluateModel,
  evaluationParts,
  formatDivergence,
  formatEvaluation,
  taskNames,
  type EvaluationPart,
  type EvaluationReport,
  type OpenModel,
  type TaskName,
} from '@winnow/evaluation';
import { formatAttention, parseAttention } from '@winnow/sparse-attention';
import { ArgumentError, IoError } from '@winnow/tensor';
import type { CommandContext, CommandHost } from '../command-host.js';
import { registerEvalH2o } from './eval-h2o.js';
import { evaluateSidecar } from './eval-sparse.js';
import { registerEvalSts } from './eval-sts.js';
import { attentionOf } from '../engine-options.js';
import { UsageError } from '../errors.js';
import { formatJson } from '../format.js';
import { createModelOpener, tokensOf } from '../model-evaluation.js';
import { displayName } from '../model-location.js';
import {
  addAttentionOptions,
  addLoadOptions,
  addModelOption,
  addOutputOptions,
  choiceOption,
  chooseModel,
  numberOption,
  numberRules,
  type LoadFlags,
} from '../options.js';
import { parseKvDType, parseNumber, refuse } from '../parse-values.js';
import { readText } from '../read-text.js';

interface EvalFlags extends LoadFlags {
  readonly policies?: string;
  readonly kvDtypes?: string;
  readonly parts?: string;
  readonly text?: string;
  readonly tokens: number;
  readonly attentionTokens?: number;
  readonly tasks?: string;
  readonly taskForm?: 'codes' | 'general';
  readonly taskLengths?: string;
  readonly cases: number;
  readonly lengths?: string;
  readonly seed: number;
  readonly details?: boolean;
  readonly plots?: string;
  readonly pairs?: string;
}

const examples = `
Parts: logits (forced decoding beside dense), attention (per layer and head, beside the oracle of the same budget, on
queries, keys and values of the model and on synthetic ones), tasks (recall: three questions on one cache, every token of
a question under the tested policy), speed, determinism.

Examples:
  $ winnow eval
  $ winnow eval model.gguf --text book.txt --tokens 2048 --policies 'dense|subquadratic:window=256|sparq:topk=128'
  $ winnow eval --parts tasks --task-lengths 256,1024 --policies 'dense|prefill=h2o:chunk=256,local=64,heavy=64'
  $ winnow eval model.gguf --sparse model.sparse.safetensors --text book.txt
  $ winnow eval --kv-dtypes 'f16|q8_0|q8_0,q4_0' --policies dense --parts logits,tasks --json

With --sparse nothing else is measured: its predictors layer by layer, and divergence from the dense model; of models that
embed, cosines of vectors to those of the dense model.
Policies are separated by |, in the language of --attention. The default has every family at three budgets. The figures
but for speed depend only on the flags. A text that is not given is built in. docs/guides/sparse-attention.md reads them.
`;

export function registerEval(program: Command, host: CommandHost): void {
  const command = program.command('eval').argument('[model]', 'the model; without it the demo model');
  command
    .description('Measures what attention policies and cache dtypes lose against dense.')
    .addHelpText('after', examples);
  addModelOption(command)
    .option('--policies <list>', "policies to compare, separated by |; '' for none")
    .option('--kv-dtypes <list>', "cache dtypes to compare, separated by |, such as f16|q8_0,q4_0; '' for none")
    .option('--parts <list>', `of ${evaluationParts.join(',')}; default: all`)
    .option('--text <path>', 'the text to run over, - for stdin; default: a built-in one')
    .addOption(numberOption('--tokens <n>', 'tokens of the text', numberRules.count).default(1024))
    .addOption(
      numberOption(
        '--attention-tokens <n>',
        'tokens to measure attention over; default: at most 512',
        numberRules.count,
      ),
    )
    .option('--tasks <list>', `of ${taskNames.join(',')}; default: all`)
    .addOption(
      choiceOption('--task-form <form>', 'wording of tasks; default codes for the demo model, else general', [
        'codes',
        'general',
      ]),
    )
    .option('--task-lengths <list>', 'tokens of the texts of tasks, such as 256,1024; default 512')
    .addOption(numberOption('--cases <n>', 'cases per task and length', numberRules.count).default(4))
    .option(
      '--lengths <list>',
      'prompt lengths to measure speed at; default: a quarter, half and nearly all of --tokens',
    )
    .addOption(
      numberOption('-s, --seed <n>', 'seed of tasks, synthetic heads and draws', numberRules.fromZero).default(1),
    )
    .option('--details', 'print each comparison as a block, as llama-perplexity --kl-divergence does')
    .option('--plots <folder>', 'write quality.svg, prompt-time.svg and answer-time.svg there')
    .option('--pairs <path>', 'with --sparse, of models that embed: pairs of sentences as for winnow eval sts');
  addOutputOptions(addLoadOptions(addAttentionOptions(command)), 'print one JSON object');
  command.action((model: string | undefined, flags: EvalFlags) =>
    host.run(flags, (context) => evaluate(chooseModel(model, flags.model), flags, context)),
  );
  registerEvalSts(command, host);
  registerEvalH2o(command, host);
}

async function evaluate(modelName: string | undefined, flags: EvalFlags, context: CommandContext): Promise<void> {
  const { sparse } = flags;
  if (sparse !== undefined) return evaluateSidecar(modelName, { ...flags, sparse }, context);
  if (flags.pairs !== undefined) throw new UsageError('--pairs: expected --sparse with it (see winnow eval sts)');
  const { signal, progress, warn, out } = context;
  const parts = chosen('--parts', flags.parts, evaluationParts);
  const tasks = chosen('--tasks', flags.tasks, taskNames);
  const text = flags.text === undefined ? undefined : await readText(context.io, { file: flags.text }, signal);
  const { open } = await createModelOpener(modelName, flags, context);
  const { config, tokens } = await look(open, text, flags.tokens);
  if (tokens.length < flags.tokens) warn(`the text has ${tokens.length} tokens, not ${flags.tokens}`);
  const report = await evaluateModel({
    open,
    configurations: createConfigurations(
      policiesOf(flags, tokens.length, config.headDim),
      kvDTypesOf(flags.kvDtypes, config.headDim),
    ),
    parts,
    tokens,
    attentionTokens: Math.min(flags.attentionTokens ?? 512, tokens.length),
    tasks,
    taskForm: flags.taskForm ?? (modelName === undefined ? 'codes' : 'general'),
    taskLengths: numbersOf('--task-lengths', flags.taskLengths) ?? [512],
    numCases: flags.cases,
    speedLengths: numbersOf('--lengths', flags.lengths) ?? defaultLengths(tokens.length),
    seed: flags.seed,
    signal,
    onProgress: (what, done, total) => progress.show(what, done, total + 1, 'tokens'),
  });
  progress.clear();
  const named = { ...report, model: displayName(modelName, report.model) };
  if (flags.plots !== undefined) await writePlots(flags.plots, named);
  await out.write(flags.json === true ? formatJson(named) : formatEvaluation(named));
  if (flags.details === true && flags.json !== true) await out.write(details(named));
}

/** The tokens of the text and what the model is like, before anything is measured. */
async function look(
  open: OpenModel,
  text: string | undefined,
  numTokens: number,
): Promise<{ readonly config: Model['config']; readonly tokens: Int32Array }> {
  await using model = await open({ attention: undefined, kvDType: { keys: 'f32', values: 'f32' }, contextSize: 64 });
  return { config: model.config, tokens: tokensOf(model, text, numTokens) };
}

function details({ configurations }: EvaluationReport): string {
  const blocks = configurations.flatMap(({ label, logits }) =>
    Object.entries(logits).map(([phase, report]) => `\n${label}, ${phase}\n${formatDivergence(report)}`),
  );
  return blocks.join('');
}

async function writePlots(folder: string, report: EvaluationReport): Promise<void> {
  const { drawQuality, drawTime } = await import('@winnow/evaluation/plots');
  const files = {
    'quality.svg': drawQuality(report),
    'prompt-time.svg': drawTime(report, 'prefill'),
    'answer-time.svg': drawTime(report, 'decode'),
  };
  await makeFolder(folder);
  try {
    for (const [name, svg] of Object.entries(files)) {
      if (svg !== undefined) await writeFile(join(folder, name), svg);
    }
  } catch (cause) {
    throw new IoError({ source: folder, message: `cannot be written (${(cause as Error).message})` }, { cause });
  }
}

function listOf(text: string): string[] {
  const items = text.split('|').map((item) => item.trim());
  return items.filter((item) => item !== '');
}

function checkPolicyText(policy: string): void {
  try {
    parseAttention(policy);
  } catch (error) {
    if (!ArgumentError.isInstance(error)) throw error;
    throw new UsageError(error.message.replace(/^attention\b/, '--policies'));
  }
}

/** Those of `--policies`, that of `--attention` and its relatives, or all families. */
function policiesOf(flags: EvalFlags, numTokens: number, headDim: number): string[] {
  const one = attentionOf(flags);
  if (flags.policies !== undefined) {
    const policies = listOf(flags.policies);
    for (const policy of policies) checkPolicyText(policy);
    return [...policies, ...(one === undefined ? [] : [formatAttention(one)])];
  }
  return one === undefined ? defaultPolicies(numTokens, headDim) : ['dense', formatAttention(one)];
}

function kvDTypesOf(text: string | undefined, headDim: number): KvDTypes[] {
  if (text === undefined) return defaultKvDTypes(headDim);
  return listOf(text).map((item) => {
    const parsed = parseKvDType('--kv-dtypes', item);
    return typeof parsed === 'string' ? { keys: parsed, values: parsed } : parsed;
  });
}

function chosen<T extends EvaluationPart | TaskName>(
  flag: string,
  text: string | undefined,
  all: readonly T[],
): readonly T[] {
  if (text === undefined) return all;
  return text.split(',').map((word) => {
    const found = all.find((name) => name === word.trim());
    if (found === undefined) throw refuse(flag, `names of ${all.join(', ')}`, word.trim());
    return found;
  });
}

function numbersOf(flag: string, text: string | undefined): number[] | undefined {
  return text?.split(',').map((word) => parseNumber(flag, word.trim(), numberRules.count));
}

function defaultLengths(numTokens: number): number[] {
  return [...new Set([0.25, 0.5, 0.9].map((share) => Math.max(1, Math.floor(share * numTokens))))];
}
