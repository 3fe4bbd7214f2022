/** `winnow run`: one prompt, one answer. */
import type { Command } from 'commander';
import type { GenerateOptions, GenerationResult, Model, Prompt, SamplingOptions } from '@winnow/engine';
import type { CommandContext, CommandHost } from '../command-host.js';
import { constraintOf } from '../constraint-options.js';
import { attentionOf, limitsOf, resumedSampling, samplingOf, seedOf } from '../engine-options.js';
import { InterruptedError, UsageError } from '../errors.js';
import { formatJson } from '../format.js';
import { displayName } from '../model-location.js';
import { openModel } from '../open-model.js';
import {
  addAttentionOptions,
  addGenerationOptions,
  addLoadOptions,
  addModelOption,
  addOutputOptions,
  addSessionOptions,
  addTextOptions,
  chooseModel,
  type GenerationFlags,
  type LoadFlags,
  type SessionFlags,
  type TextFlags,
} from '../options.js';
import { unescapeText } from '../parse-values.js';
import { feedForwardTable } from '../feed-forward-table.js';
import { profileByOp, profileTable, type Peaks } from '../profile-table.js';
import { readText } from '../read-text.js';
import { streamGeneration, type Streamed } from '../stream-generation.js';
import { summaryLine } from '../summary.js';

interface RunFlags extends LoadFlags, GenerationFlags, TextFlags, SessionFlags {
  readonly chat?: boolean;
  readonly system?: string;
  readonly displayPrompt?: boolean;
  readonly summary?: boolean;
}

const examples = `
Examples:
  $ winnow run -p 'Once upon a time' -n 100 --seed 7
  $ winnow run model.gguf -f story.txt --temp 0 --stop 'The End'
  $ echo 'What is a winnow?' | winnow run ./model-folder --chat
  $ winnow run -p 'Once upon a time' -n 50 --save-session story && winnow run --load-session story -n 50
  $ winnow run hf:owner/name:q4_k_m -p 'Hello' --json
  $ winnow run -p 'The whale is' --grammar 'root ::= " " ("black" | "white") "."'

The prompt comes from -p, from -f, or from stdin when that is no terminal. The generated text goes to stdout as it
arrives; a line end is added on a terminal only. With --json stdout gets one object at the end instead.
`;

export function registerRun(program: Command, host: CommandHost): void {
  const command = program.command('run').argument('[model]', 'the model; without it the demo model');
  command.description('Continues a prompt and streams the text to stdout.').addHelpText('after', examples);
  addTextOptions(addModelOption(command), 'the prompt');
  addGenerationOptions(command, 128, 'most tokens to generate; -1: until the end or a full context');
  addSessionOptions(command, 'begin with a saved session; without a prompt its generation goes on');
  addLoadOptions(addAttentionOptions(command))
    .option('--chat', "take the prompt as a user's message, through the model's chat template")
    .option('--no-chat', 'take the prompt as it is (the default)')
    .option('--system <text>', 'system message, with --chat')
    .option('--display-prompt', 'print the prompt before the text')
    .option('--summary', 'a line of counts and speeds on stderr, also when that is no terminal')
    .option('--profile', 'measure every op; a table on stderr, or "profile" with --json');
  addOutputOptions(command, 'print one JSON object at the end instead of the text');
  command.action((model: string | undefined, flags: RunFlags) =>
    host.run(flags, (context) => run(chooseModel(model, flags.model), flags, context)),
  );
}

async function run(modelName: string | undefined, flags: RunFlags, context: CommandContext): Promise<void> {
  const { io, out, progress, signal, warn } = context;
  if (flags.system !== undefined && flags.chat !== true) {
    throw new UsageError('--system: expected together with --chat, got --system alone');
  }
  const text = await promptOf(flags, context);
  const constraint = await constraintOf(flags, io, signal);
  await using model = await openModel(modelName, flags, context, attentionOf(flags));
  const prompt = text === undefined ? undefined : conversationOf(model, text, flags);
  const sampling =
    prompt === undefined
      ? resumedSampling(flags)
      : samplingOf(flags, model.defaultSampling, seedOf(flags, io.randomSeed));
  const options: GenerateOptions = {
    ...limitsOf(flags),
    ...constraint,
    ...sampling,
    signal,
    onPromptProgress: ({ processedTokens, totalTokens }) =>
      progress.show('prompt', processedTokens, totalTokens, 'tokens'),
  };
  const isStreaming = flags.json !== true;
  using session =
    flags.loadSession === undefined ? model.createSession() : await model.restoreSession(flags.loadSession, { signal });
  if (isStreaming && flags.displayPrompt === true) await out.write(text ?? '');
  const generation = prompt === undefined ? session.resume(options) : session.generate(prompt, options);
  const streamed = await streamGeneration(generation, async (piece) => {
    progress.clear();
    if (isStreaming) await out.write(piece);
  });
  progress.clear();
  // also after Ctrl-C: what was computed is not lost
  if (flags.saveSession !== undefined) await session.save(flags.saveSession);
  if (isStreaming) {
    if (out.isTerminal && !endsLine(streamed.text)) await out.write('\n');
    if (flags.profile === true) {
      const peaks = await peaksOf(model, flags, context);
      io.stderr.write(profileTable(model.profile(), peaks) + feedForwardTable(model.metrics().feedForward));
    }
  } else {
    const name = displayName(modelName, model.name);
    await out.write(
      formatJson({
        ...{ model: name, ...jsonOf(model, streamed, sampling) },
        ...(flags.profile === true ? profileJson(model, await peaksOf(model, flags, context)) : {}),
      }),
    );
  }
  if (streamed.error !== undefined) throw signal.aborted ? new InterruptedError() : streamed.error;
  if (streamed.result) report(streamed.result, model, flags, context, warn);
}

/** Undefined to go on with a loaded session. */
async function promptOf(flags: RunFlags, { io, signal }: CommandContext): Promise<string | undefined> {
  if (flags.loadSession !== undefined && flags.prompt === undefined && flags.file === undefined) return undefined;
  const text = await readText(io, flags, signal);
  if (text === undefined) throw new UsageError('--prompt: expected a prompt by -p, -f or a pipe, got none');
  return flags.escape === true && flags.prompt !== undefined ? unescapeText(text) : text;
}

function conversationOf(model: Model, text: string, flags: RunFlags): Prompt {
  if (flags.chat !== true) return text;
  if (model.chatTemplate === undefined) {
    throw new UsageError(`--chat: expected a model with a chat template, got ${model.name}, which has none`);
  }
  const system = flags.system === undefined ? [] : [{ role: 'system', content: flags.system }];
  return [...system, { role: 'user', content: text }];
}

/** The object of `--json`; an aborted generation has what was generated until then. */
function jsonOf(model: Model, streamed: Streamed, sampling: SamplingOptions): object {
  const { result } = streamed;
  return {
    text: result?.text ?? streamed.text,
    tokens: result?.tokens ?? streamed.tokens,
    promptTokens: result?.promptTokens ?? null,
    cachedTokens: result?.cachedTokens ?? null,
    droppedTokens: result?.droppedTokens ?? null,
    evictedTokens: result?.evictedTokens ?? null,
    finishReason: result?.finishReason ?? 'aborted',
    seed: sampling.seed ?? null,
    contextSize: model.contextSize,
    timings: result?.timings ?? null,
    backend: model.backend,
    fallbacks: model.fallbacks,
    metrics: model.metrics(),
  };
}

/** What the machine can do, for the backend whose probes there are. Measured while nothing else runs. */
async function peaksOf(model: Model, { threads }: RunFlags, { io }: CommandContext): Promise<Peaks | undefined> {
  return model.backend === 'wasm' ? io.measurePeaks(threads) : undefined;
}

function profileJson(model: Model, peaks: Peaks | undefined): object {
  return { profile: model.profile(), profileByOp: profileByOp(model.profile(), peaks), peaks: peaks ?? null };
}

function report(
  result: GenerationResult,
  model: Model,
  flags: RunFlags,
  { io }: CommandContext,
  warn: (text: string) => void,
): void {
  if (result.droppedTokens > 0) {
    warn(`the prompt was too long: ${result.droppedTokens} of its tokens were dropped (--overflow ${flags.overflow})`);
  }
  if (result.evictedTokens > 0) {
    const policy = flags.overflow === undefined ? 'as the session was begun' : `--overflow ${flags.overflow}`;
    warn(`the context was full: ${result.evictedTokens} tokens went out of it (${policy})`);
  }
  if (result.finishReason === 'context') warn(`the context of ${model.contextSize} tokens is full`);
  const wantsSummary = flags.summary === true || (io.stderr.isTTY === true && flags.json !== true);
  if (wantsSummary) warn(summaryLine(result));
}

function endsLine(text: string): boolean {
  return text === '' || text.endsWith('\n');
}
