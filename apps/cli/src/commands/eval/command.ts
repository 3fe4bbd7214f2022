/** `winnow eval`: the quality loss of attention policies and cache dtypes compared with dense. */
import { join } from 'node:path';
import type { Command } from 'commander';
import { makeFolder } from '@winnow/bytes/node';
import type { KvDTypes, Model } from '@winnow/engine';
import {
  baseConfiguration,
  createConfigurations,
  defaultKvDTypes,
  defaultPolicies,
  evaluateModel,
  evaluationParts,
  formatDivergence,
  formatEvaluation,
  openOptionsOf,
  taskNames,
  type EvaluateOptions,
  type EvaluationPart,
  type EvaluationReport,
  type OpenModel,
  type TaskName,
} from '@winnow/evaluation';
import { formatAttention, parseAttention, type AttentionSpec } from '@winnow/sparse-attention';
import { ArgumentError } from '@winnow/tensor';
import { withCalculator } from '../../models/calculator.js';
import type { CommandContext, CommandHost } from '../command-host.js';
import { registerEvalH2o } from './h2o.js';
import { evaluateSidecar } from './sparse.js';
import { registerEvalRerank } from './rerank.js';
import { registerEvalSts } from './sts.js';
import { withoutPolicies } from '../../flags/engine-options.js';
import { chosenAttention } from '../../models/policy-files.js';
import { UsageError } from '../../errors/errors.js';
import { formatJson } from '../../terminal/format.js';
import { createModelOpener, tokensOf } from '../../models/model-evaluation.js';
import { displayName } from '../../models/model-location.js';
import { readText } from '../../terminal/read-text.js';
import { addGroup, choiceOption, flag, numberOption, numberRules } from '../../flags/builders.js';
import { describe } from '../../flags/help.js';
import {
  addModelOption,
  addOutputOptions,
  addAttentionOptions,
  addLoadOptions,
  chooseModel,
  type LoadFlags,
} from '../../flags/load.js';
import { parseKvDType, parseNumber, refuse } from '../../flags/parse-values.js';
import { writeOutputFile } from '../../terminal/write-file.js';

interface EvalFlags extends LoadFlags {
  readonly sparsity?: string;
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
Parts: logits (teacher forcing, compared with dense), attention (per layer and head, compared with an oracle of the same
budget, on the model's queries, keys and values and on synthetic heads), tasks (recall: three questions over one cache),
speed, determinism.

Examples:
  $ winnow eval
  $ winnow eval model.gguf --text book.txt --tokens 2048 --policies 'dense|subquadratic:window=256|sparq:topk=128'
  $ winnow eval --parts tasks --task-lengths 256,1024 --policies 'dense|prefill=h2o:chunk=256,local=64,heavy=64'
  $ winnow eval model.gguf --sparsity model.sparse.safetensors --text book.txt
  $ winnow eval --kv-dtypes 'f16|q8_0|q8_0,q4_0' --policies dense --parts logits,tasks --json

With --sparsity only the sparse FFN is evaluated: predictors layer by layer and the divergence from dense, or cosines for
an embedding model. By default every policy runs at three budgets. All figures except speed depend only on the flags.
docs/guides/sparse-attention.md explains them.
`;

function addEvaluationOptions(command: Command): void {
  const { count, fromZero } = numberRules;
  const taskForms = ['codes', 'general'];
  addGroup(command, {
    heading: 'Evaluation',
    common: [
      flag('--policies <list>', "attention policies to compare, separated by |; '' for none"),
      flag('--kv-dtypes <list>', "KV cache dtypes to compare, separated by |, such as f16|q8_0,q4_0; '' for none"),
      flag('--parts <list>', `parts to run: ${evaluationParts.join(',')} (default: all)`),
      flag('--text <path>', 'text to evaluate on, - for stdin (default: a built-in text)'),
      numberOption('--tokens <n>', 'number of tokens of the text', count).default(1024),
      flag('--plots <folder>', 'write quality.svg, prompt-time.svg and answer-time.svg to this folder'),
    ],
    advanced: [
      numberOption('--attention-tokens <n>', 'number of tokens of the attention part (default: at most 512)', count),
      flag('--tasks <list>', `recall tasks: ${taskNames.join(',')} (default: all)`),
      choiceOption('--task-form <form>', 'wording of tasks', taskForms, 'codes for the demo model, else general'),
      flag('--task-lengths <list>', 'lengths of the task texts in tokens, such as 256,1024 (default: 512)'),
      numberOption('--cases <n>', 'number of cases per task and length', count).default(4),
      flag('--lengths <list>', 'prompt lengths of the speed part (default: derived from --tokens)'),
      numberOption('-s, --seed <n>', 'random seed of tasks and synthetic heads', fromZero).default(1),
      flag('--details', 'print each comparison as a block, like llama-perplexity --kl-divergence'),
      flag('--pairs <path>', 'with --sparsity and an embedding model: sentence pairs as for winnow eval sts'),
    ],
  });
}

export function registerEval(program: Command, host: CommandHost): void {
  const command = program.command('eval').argument('[model]', 'the model (default: the demo model)');
  addModelOption(command);
  addEvaluationOptions(command);
  addOutputOptions(addLoadOptions(addAttentionOptions(command)), 'print one JSON object');
  describe(command, 'Compares attention policies and KV cache types with dense attention in f32.', examples);
  command.action((model: string | undefined, flags: EvalFlags) =>
    host.run(flags, (context) => evaluate(chooseModel(model, flags.model), flags, context)),
  );
  registerEvalSts(command, host);
  registerEvalRerank(command, host);
  registerEvalH2o(command, host);
}

async function evaluate(modelName: string | undefined, flags: EvalFlags, context: CommandContext): Promise<void> {
  const { sparsity } = flags;
  if (sparsity !== undefined) return evaluateSidecar(modelName, { ...flags, sparsity }, context);
  if (flags.pairs !== undefined) throw new UsageError('--pairs: requires --sparsity (see winnow eval sts)');
  const { signal, progress, warn, out } = context;
  const parts = chosen('--parts', flags.parts, evaluationParts);
  const tasks = chosen('--tasks', flags.tasks, taskNames);
  const text = flags.text === undefined ? undefined : await readText(context.io, { file: flags.text }, signal);
  const { open, location } = await createModelOpener(modelName, withoutPolicies(flags), context);
  const one = await chosenAttention(modelName, flags, location, context);
  const { config, tokens } = await look(open, text, flags.tokens);
  if (tokens.length < flags.tokens) warn(`the text has ${tokens.length} tokens, not ${flags.tokens}`);
  const options: EvaluateOptions = {
    open,
    configurations: createConfigurations(
      policiesOf(flags, one, tokens.length, config.headDim),
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
    onProgress: (what, done, total) => {
      progress.show(what, done, total + 1, 'steps');
      if (context.io.stderr.isTTY !== true) warn(`step ${done + 1} of ${total + 1}: ${what}`);
    },
  };
  const report = await withCalculator(flags, (backend) => evaluateModel({ ...options, backend }));
  progress.clear();
  const named = { ...report, model: displayName(modelName, report.model) };
  if (flags.plots !== undefined) await writePlots(flags.plots, named, signal);
  if (flags.json === true) return out.write(formatJson(named));
  await out.writeTables(formatEvaluation(named));
  if (flags.details === true) await out.writeTables(details(named));
}

/** The tokens of the text and properties of the model, before anything is measured. */
async function look(
  open: OpenModel,
  text: string | undefined,
  numTokens: number,
): Promise<{ readonly config: Model['config']; readonly tokens: Int32Array }> {
  await using model = await open(openOptionsOf(baseConfiguration, 64));
  return { config: model.config, tokens: tokensOf(model, text, numTokens) };
}

function details({ configurations }: EvaluationReport): string {
  const blocks = configurations.flatMap(({ label, logits }) =>
    Object.entries(logits).map(([phase, report]) => `\n${label}, ${phase}\n${formatDivergence(report)}`),
  );
  return blocks.join('');
}

async function writePlots(folder: string, report: EvaluationReport, signal: AbortSignal): Promise<void> {
  const { drawQuality, drawTime } = await import('@winnow/evaluation/plots');
  const files = {
    'quality.svg': drawQuality(report),
    'prompt-time.svg': drawTime(report, 'prefill'),
    'answer-time.svg': drawTime(report, 'decode'),
  };
  await makeFolder(folder);
  for (const [name, svg] of Object.entries(files)) {
    if (svg !== undefined) await writeOutputFile(join(folder, name), svg, signal);
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

/** The policies of `--policies`, of `--attention`, `--prefill` and `--decode`, or all kinds at three budgets. */
function policiesOf(flags: EvalFlags, one: AttentionSpec | undefined, numTokens: number, headDim: number): string[] {
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
