/** What an evaluation does, as plain data: it can be sent to other processes. */
import type { KvDTypes, Model, ModelLocation } from '@winnow/engine';
import {
  baseConfiguration,
  createConfigurations,
  defaultKvDTypes,
  defaultPolicies,
  evaluationParts,
  openOptionsOf,
  taskNames,
  type EvaluateOptions,
  type EvaluationPart,
  type OpenModel,
  type TaskName,
} from '@winnow/evaluation';
import { formatAttention, parseAttention, type AttentionSpec } from '@winnow/sparse-attention';
import { ArgumentError } from '@winnow/tensor';
import type { CommandContext } from '../command-host.js';
import { withoutPolicies } from '../../flags/engine-options.js';
import { chosenAttention } from '../../models/policy-files.js';
import { UsageError } from '../../errors/errors.js';
import { createModelOpener, tokensOf } from '../../models/model-evaluation.js';
import { readText } from '../../terminal/read-text.js';
import { numberRules } from '../../flags/builders.js';
import { parseKvDType, parseNumber, refuse } from '../../flags/parse-values.js';
import type { EvalFlags } from './command.js';

type SharedOptions = Pick<
  EvaluateOptions,
  'parts' | 'attentionTokens' | 'tasks' | 'taskForm' | 'taskLengths' | 'numCases' | 'speedLengths' | 'seed'
>;

export interface EvaluationPlan extends SharedOptions {
  readonly policies: readonly string[];
  readonly kvDTypes: readonly KvDTypes[];
  readonly tokens: readonly number[];
}

export interface PlannedEvaluation {
  readonly plan: EvaluationPlan;
  /** Of the model. */
  readonly name: string;
  readonly location: ModelLocation;
  readonly open: OpenModel;
}

export async function planEvaluation(
  modelName: string | undefined,
  flags: EvalFlags,
  context: CommandContext,
): Promise<PlannedEvaluation> {
  const { signal, warn } = context;
  const parts = chosen('--parts', flags.parts, evaluationParts);
  const tasks = chosen('--tasks', flags.tasks, taskNames);
  const text = flags.text === undefined ? undefined : await readText(context.io, { file: flags.text }, signal);
  const { open, location } = await createModelOpener(modelName, withoutPolicies(flags), context);
  const one = await chosenAttention(modelName, flags, location, context);
  const { config, name, tokens } = await look(open, text, flags.tokens);
  if (tokens.length < flags.tokens) warn(`the text has ${tokens.length} tokens, not ${flags.tokens}`);
  const plan: EvaluationPlan = {
    policies: policiesOf(flags, one, tokens.length, config.headDim),
    kvDTypes: kvDTypesOf(flags.kvDtypes, config.headDim),
    parts,
    tokens: Array.from(tokens),
    attentionTokens: Math.min(flags.attentionTokens ?? 512, tokens.length),
    tasks,
    taskForm: flags.taskForm ?? (modelName === undefined ? 'codes' : 'general'),
    taskLengths: numbersOf('--task-lengths', flags.taskLengths) ?? [512],
    numCases: flags.cases,
    speedLengths: numbersOf('--lengths', flags.lengths) ?? defaultLengths(tokens.length),
    seed: flags.seed,
  };
  return { plan, name, location, open };
}

export function evaluateOptionsOf(
  { policies, kvDTypes, tokens, ...shared }: EvaluationPlan,
  open: OpenModel,
): EvaluateOptions {
  const configurations = createConfigurations(policies, kvDTypes);
  return { ...shared, open, configurations, tokens: Int32Array.from(tokens) };
}

/** Reads the tokens of the text and the properties of the model before anything is measured. */
async function look(
  open: OpenModel,
  text: string | undefined,
  numTokens: number,
): Promise<Pick<Model, 'config' | 'name'> & { readonly tokens: Int32Array }> {
  await using model = await open(openOptionsOf(baseConfiguration, 64));
  return { config: model.config, name: model.name, tokens: tokensOf(model, text, numTokens) };
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
