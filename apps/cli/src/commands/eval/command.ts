/** `winnow eval`: the quality loss of attention policies and cache dtypes compared with dense. */
import type { Command } from 'commander';
import { evaluateModel, evaluationParts, taskNames, type EvaluateOptions } from '@winnow/evaluation';
import { withCalculator } from '../../models/calculator.js';
import type { CommandContext, CommandHost } from '../command-host.js';
import { registerEvalH2o } from './h2o.js';
import { evaluateSidecar } from './sparse.js';
import { registerEvalRerank } from './rerank.js';
import { registerEvalSts } from './sts.js';
import { evaluateOptionsOf, planEvaluation } from './plan.js';
import { printEvaluation } from './print.js';
import { evaluateByQueue } from './queued.js';
import { queueOf, queueOption } from '../queue/open-queue.js';
import { UsageError } from '../../errors/errors.js';
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

export interface EvalFlags extends LoadFlags {
  readonly queue?: string;
  readonly modelId?: string;
  readonly cancel?: boolean;
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
  $ winnow eval model.gguf --queue jobs.db
  $ winnow eval --kv-dtypes 'f16|q8_0|q8_0,q4_0' --policies dense --parts logits,tasks --json

With --sparsity only the sparse FFN is evaluated: predictors layer by layer and the divergence from dense, or cosines for
an embedding model. By default every policy runs at three budgets. All figures except speed depend only on the flags, also
with --queue, where winnow worker runs each part of each policy, in any number of processes with the same model.
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
  addGroup(command, {
    heading: 'Queue',
    common: [queueOption('let the workers of a queue run the parts, and wait for them')],
    advanced: [
      flag('--model-id <id>', "id of the workers' model (default: the model's own name)"),
      flag('--cancel', 'take the parts out of the queue, without a report'),
    ],
  });
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
  const queue = queueOf(flags, context.io);
  if (queue !== undefined) return evaluateByQueue(modelName, queue, flags, context);
  const queued = flags.cancel === true ? '--cancel' : flags.modelId === undefined ? undefined : '--model-id';
  if (queued !== undefined) throw new UsageError(`${queued}: requires --queue`);
  if (sparsity !== undefined) return evaluateSidecar(modelName, { ...flags, sparsity }, context);
  if (flags.pairs !== undefined) throw new UsageError('--pairs: requires --sparsity (see winnow eval sts)');
  const { signal, progress, warn } = context;
  const { plan, open } = await planEvaluation(modelName, flags, context);
  const onProgress: EvaluateOptions['onProgress'] = (what, done, total) => {
    progress.show(what, done, total + 1, 'steps');
    if (context.io.stderr.isTTY !== true) warn(`step ${done + 1} of ${total + 1}: ${what}`);
  };
  const options = { ...evaluateOptionsOf(plan, open), signal, onProgress };
  const report = await withCalculator(flags, (backend) => evaluateModel({ ...options, backend }));
  progress.clear();
  await printEvaluation(modelName, report, flags, context);
}
