/** `winnow tune`: finds the attention policies of a model within a budget and writes them as a policy file. */
import type { Command } from 'commander';
import type { Model } from '@winnow/engine';
import {
  baseConfiguration,
  formatTuning,
  openOptionsOf,
  taskNames,
  tuneAttention,
  type TaskName,
  type TuneCosts,
  type TuneReport,
  type TuneText,
} from '@winnow/evaluation';
import {
  formatPolicy,
  formatTunedPolicy,
  parsePolicy,
  supportsPhase,
  type PolicyBudget,
} from '@winnow/sparse-attention';
import { ArgumentError } from '@winnow/tensor';
import { UsageError } from '../errors/errors.js';
import { addGroup, choiceOption, flag, listOption, numberOption, numberRules } from '../flags/builders.js';
import { describe } from '../flags/help.js';
import { addLoadOptions, addModelOption, addOutputOptions, chooseModel, type LoadFlags } from '../flags/load.js';
import { refuse } from '../flags/parse-values.js';
import { withCalculator } from '../models/calculator.js';
import { cutWindows } from '../models/calibration-text.js';
import { createModelOpener } from '../models/model-evaluation.js';
import { displayName } from '../models/model-location.js';
import { machineName, policyCheckpoint, policyPath } from '../models/policy-files.js';
import { checkWritable } from '../models/sparse-files.js';
import { formatJson } from '../terminal/format.js';
import { readText } from '../terminal/read-text.js';
import { writeOutputFile } from '../terminal/write-file.js';
import type { CommandContext, CommandHost } from './command-host.js';

interface TuneFlags extends LoadFlags {
  readonly text?: readonly string[];
  readonly kld?: number;
  readonly recall?: number;
  readonly speedup?: number;
  readonly windows: number;
  readonly rows: number;
  readonly decoded?: number;
  readonly rounds: number;
  readonly costs?: TuneCosts;
  readonly candidates?: string;
  readonly tasks?: string;
  readonly taskForm?: 'codes' | 'general';
  readonly cases: number;
  readonly seed: number;
  readonly output?: string;
  readonly page?: string;
}

/** Tokens of the context without --context. */
const defaultContext = 8192;

const examples = `
Examples:
  $ winnow tune
  $ winnow tune model.gguf --text book.txt --kld 0.01 --page tuned.html
  $ winnow tune model.gguf --text book.txt --text mails.txt --recall 0.95 --context 16384
  $ winnow run model.gguf -f long.txt --attention auto

First one layer at a time is sparse, then the divergences that were measured are distributed over the layers of each
phase, then both phases are checked together, on the first half of the text and on the second half, which the search has
not seen. Without a budget it is --kld 0.01. Ctrl-C stops; the same command resumes. Everything but times depends only
on the flags; with --costs pairs so does the choice. docs/guides/choosing-a-policy.md explains the figures.
`;

function addTuneOptions(command: Command): void {
  const { count, fromZero, positive, share } = numberRules;
  const fromOne = { expected: 'a number from 1', isValid: (value: number) => value >= 1 };
  addGroup(command, {
    heading: 'Tuning',
    common: [
      listOption(
        '--text <path>',
        'text to tune on; may be repeated (default: a built-in text, too simple for real use)',
      ),
      numberOption('--kld <nats>', 'budget: mean KL divergence from dense, in each phase (default: 0.01)', positive),
      numberOption('--recall <share>', 'budget: share of the recall of dense attention', share),
      numberOption('--speedup <times>', 'budget: how many times as fast as dense a prompt and its answer are', fromOne),
      flag('-o, --output <file>', 'policy file (default: the path of the model, or its name, with .policy.json)'),
      flag('--page <file>', 'write the report as an HTML page'),
    ],
    advanced: [
      numberOption(
        '--windows <n>',
        'pieces of text as long as the context, to search on and to check on',
        count,
      ).default(2),
      numberOption('--rows <n>', 'positions per piece and phase whose distributions are compared', count).default(256),
      numberOption('--decoded <n>', 'tokens per piece that are decoded (default: a quarter, at most 256)', count),
      numberOption('--rounds <n>', 'timed runs of each policy, in turns; the fastest counts', count).default(3),
      flag('--candidates <list>', 'policies to try, separated by | (default: every policy at several budgets)'),
      choiceOption(
        '--costs <kind>',
        'what to save: measured time, query-key pairs, or both',
        ['time', 'pairs', 'both'],
        'time',
      ),
      flag('--tasks <list>', `recall tasks: ${taskNames.join(',')}; '' for none (default: all)`),
      choiceOption(
        '--task-form <form>',
        'wording of tasks',
        ['codes', 'general'],
        'codes for the demo model, else general',
      ),
      numberOption('--cases <n>', 'number of cases per task', count).default(4),
      numberOption('-s, --seed <n>', 'random seed of positions and tasks', fromZero).default(1),
    ],
  });
}

export function registerTune(program: Command, host: CommandHost): void {
  const command = program.command('tune').argument('[model]', 'the model (default: the demo model)');
  addModelOption(command);
  addTuneOptions(command);
  addOutputOptions(addLoadOptions(command), 'print one JSON object');
  describe(command, 'Finds attention policies per layer within a budget and writes a .policy.json file.', examples);
  command.action((model: string | undefined, flags: TuneFlags) =>
    host.run(flags, (context) => tune(chooseModel(model, flags.model), flags, context)),
  );
}

async function tune(modelName: string | undefined, flags: TuneFlags, context: CommandContext): Promise<void> {
  const { signal, progress, warn, out } = context;
  const budget = budgetOf(flags);
  const tasks = tasksOf(flags.tasks);
  const candidates = candidatesOf(flags.candidates);
  const path = flags.output ?? policyPath(modelName);
  await checkWritable(path);
  const checkpoint = policyCheckpoint(path);
  const { open, location } = await createModelOpener(modelName, flags, context);
  const engine = await context.io.engine();
  const modelHash = await engine.weightsHash(location, { signal });
  const { name, search, heldOut } = await textsOf(open, flags, context);
  let report: TuneReport;
  try {
    report = await withCalculator(flags, (backend) =>
      tuneAttention({
        ...{ open, modelHash, budget, search, heldOut, backend, checkpoint, signal, tasks },
        ...(candidates === undefined ? {} : { candidates, uniform: candidates }),
        ...{ machine: machineName(flags.threads), costs: flags.costs, seed: flags.seed, numCases: flags.cases },
        ...{ numRows: flags.rows, numDecoded: flags.decoded, numRounds: flags.rounds },
        taskForm: flags.taskForm ?? (modelName === undefined ? 'codes' : 'general'),
        onProgress: (what, done, total) => progress.show(what, done, total + 1, 'steps'),
        onNotice: (text) => warn(`${checkpoint.path}: ${text}`),
      }),
    );
  } catch (error) {
    if (signal.aborted && (await checkpoint.exists())) warn(`run the same command to resume from ${checkpoint.path}`);
    throw contextError(error);
  } finally {
    progress.clear();
  }
  const named = { ...report, model: displayName(modelName, name) };
  await writeOutputFile(path, formatTunedPolicy(report.policy), signal);
  if (flags.page !== undefined) {
    const { drawTuning } = await import('@winnow/evaluation/plots');
    await writeOutputFile(flags.page, drawTuning(named), signal);
  }
  await checkpoint.remove();
  if (flags.json === true) return out.write(formatJson({ path, ...named }));
  await out.writeTables(`${formatTuning(named)}written: ${path}\n`);
}

/** Windows of text are as long as the context. */
function contextError(error: unknown): unknown {
  if (!ArgumentError.isInstance(error) || error.argument !== 'text') return error;
  return new UsageError(`--context: expected ${error.expected}, got ${error.actual}`);
}

/** @throws {UsageError} for more than one budget */
function budgetOf({ kld, recall, speedup }: TuneFlags): PolicyBudget {
  const given = Object.entries({ kld, recall, speedup }).filter(([, value]) => value !== undefined);
  if (given.length > 1) {
    throw new UsageError(`--${given[0]?.[0]}: expected one budget, got --${given[1]?.[0]} as well`);
  }
  if (recall !== undefined) return { recall };
  return speedup === undefined ? { kld: kld ?? 0.01 } : { speedup };
}

/** The policies of each phase that supports them. @throws {UsageError} for invalid ones */
function candidatesOf(text: string | undefined): Readonly<Record<'prefill' | 'decode', string[]>> | undefined {
  if (text === undefined) return undefined;
  try {
    const policies = text.split('|').map((item) => parsePolicy(item.trim(), '--candidates'));
    const of = (phase: 'prefill' | 'decode'): string[] =>
      policies
        .filter(({ kind }) => kind !== 'dense' && supportsPhase(kind, phase))
        .map((policy) => formatPolicy(policy));
    return { prefill: of('prefill'), decode: of('decode') };
  } catch (error) {
    throw ArgumentError.isInstance(error) ? new UsageError(error.message) : error;
  }
}

function tasksOf(text: string | undefined): readonly TaskName[] {
  if (text === undefined) return taskNames;
  if (text.trim() === '') return [];
  return text.split(',').map((word) => {
    const found = taskNames.find((name) => name === word.trim());
    if (found === undefined) throw refuse('--tasks', `names of ${taskNames.join(', ')}`, word.trim());
    return found;
  });
}

interface TuneTexts {
  /** The model's own name. */
  readonly name: string;
  readonly search: TuneText;
  readonly heldOut: TuneText;
}

async function textsOf(
  open: (options: ReturnType<typeof openOptionsOf>) => Promise<Model>,
  flags: TuneFlags,
  { io, signal, warn }: CommandContext,
): Promise<TuneTexts> {
  const parts: string[] = [];
  for (const file of flags.text ?? []) parts.push((await readText(io, { file }, signal)) ?? '');
  const text = parts.length === 0 ? undefined : parts.join('\n\n');
  if (text === undefined)
    warn('tuning on a built-in text: pass real text with --text for figures that apply to real use');
  await using model = await open(openOptionsOf(baseConfiguration, 64));
  const { contextLength } = model.config;
  const asked = flags.context === undefined || flags.context === 0 ? defaultContext : flags.context;
  const size = Math.min(asked, contextLength);
  if (flags.context !== undefined && size < asked) warn(`the model is trained for ${size} tokens, not ${asked}`);
  const encode = (part: string, addSpecialTokens: boolean): ArrayLike<number> =>
    model.tokenizer.encode(part, { addSpecialTokens });
  const windows = cutWindows(text, encode, size, flags.windows);
  if (windows.search.length < flags.windows) {
    warn(
      `the text has ${windows.search.length + windows.heldOut.length} pieces of ${size} tokens, not ${2 * flags.windows}`,
    );
  }
  const name = flags.text === undefined ? 'the built-in text' : flags.text.join(', ');
  return {
    name: model.name,
    search: { name: `the first half of ${name}`, windows: windows.search },
    heldOut: { name: `the second half of ${name}`, windows: windows.heldOut },
  };
}
