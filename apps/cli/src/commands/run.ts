/** `winnow run`: one prompt, one answer. */
import type { Command } from 'commander';
import type { GenerateOptions, GenerationResult, Model, Prompt, SamplingOptions } from '@winnow/engine';
import type { CommandContext, CommandHost } from './command-host.js';
import { constraintOf } from '../flags/constraint.js';
import { limitsOf, resumedSampling, samplingOf, seedOf } from '../flags/engine-options.js';
import { InterruptedError, UsageError } from '../errors/errors.js';
import { readImage } from '../images/read-image.js';
import { formatJson } from '../terminal/format.js';
import { displayName, isModel } from '../models/model-location.js';
import { openDraftedModel } from '../models/open-model.js';
import { SessionFiles } from '../models/session-files.js';
import { suggest } from '../errors/suggestion.js';
import { feedForwardTable } from '../terminal/feed-forward-table.js';
import { profileByOp, profileTable, type Peaks } from '../terminal/profile-table.js';
import { readText, type TextFlags } from '../terminal/read-text.js';
import { streamGeneration, type Streamed } from '../terminal/stream-generation.js';
import { checkConstraint, summaryLine } from '../terminal/summary.js';
import { addGroup, flag, listOption } from '../flags/builders.js';
import { describe } from '../flags/help.js';
import {
  addModelOption,
  addOutputOptions,
  addAttentionOptions,
  addLoadOptions,
  addSpeculativeOption,
  chooseModel,
  textOptions,
  tokensOption,
  type LoadFlags,
} from '../flags/load.js';
import {
  addGenerationOptions,
  addSessionOptions,
  type GenerationFlags,
  type SessionFlags,
} from '../flags/generation.js';
import { unescapeText } from '../flags/parse-values.js';

interface RunFlags extends LoadFlags, GenerationFlags, TextFlags, SessionFlags {
  readonly chat?: boolean;
  readonly image?: readonly string[];
  readonly system?: string;
  readonly displayPrompt?: boolean;
  readonly summary?: boolean;
  readonly tokens?: readonly number[];
}

const examples = `
Examples:
  $ winnow run -p 'Once upon a time' -n 100 --seed 7
  $ winnow run model.gguf -f story.txt --temperature 0 --stop 'The End'
  $ echo 'What is a winnow?' | winnow run ./model-folder --chat
  $ winnow run -p 'Once upon a time' -n 50 --save-session story && winnow run --load-session story -n 50
  $ winnow run hf:owner/name:q4_k_m -p 'Hello' --json
  $ winnow run -p 'The whale is' --grammar 'root ::= " " ("black" | "white") "."'

The prompt comes from -p, -f, --tokens, or from stdin if it is not a terminal. The generated text is streamed to
stdout; a final newline is added on a terminal only.
`;

export function registerRun(program: Command, host: CommandHost): void {
  const command = program.command('run').argument('[model]', 'the model (default: the demo model)');
  addGroup(addModelOption(command), {
    heading: 'Prompt',
    common: [
      ...textOptions('the prompt'),
      flag('--chat', 'treat the prompt as a user message and apply the chat template'),
      flag('--system <text>', 'system message, with --chat'),
    ],
    advanced: [
      listOption('--image <file>', 'an image before the prompt: PNG, JPEG or WebP; may be repeated'),
      tokensOption(),
      flag('--no-chat', 'use the prompt unchanged (default)'),
    ],
  });
  addGenerationOptions(command, 128, 'to generate');
  addSpeculativeOption(addLoadOptions(addAttentionOptions(command)));
  addSessionOptions(command, 'restore a session; without a prompt its generation continues');
  addOutputOptions(command, 'print one JSON object at the end instead of the text');
  addGroup(command, {
    heading: 'Output',
    advanced: [
      flag('--display-prompt', 'print the prompt before the text'),
      flag('--summary', 'print token counts and speeds to stderr, even if it is not a terminal'),
      flag('--profile', 'time every op: a table on stderr, or "profile" in the output of --json'),
    ],
  });
  describe(command, 'Continues a prompt and streams the text to stdout.', examples);
  command.action((model: string | undefined, flags: RunFlags) =>
    host.run(flags, (context) => run(chooseModel(model, flags.model), flags, context)),
  );
}

async function run(modelName: string | undefined, flags: RunFlags, context: CommandContext): Promise<void> {
  const { io, out, progress, signal, warn } = context;
  if (flags.system !== undefined && flags.chat !== true) {
    throw new UsageError('--system: requires --chat');
  }
  const input = await promptOf(modelName, flags, context);
  const constraint = await constraintOf(flags, io, signal);
  const images = await Promise.all((flags.image ?? []).map((path) => readImage(path, signal)));
  const files = await SessionFiles.create(flags, signal);
  await using model = await openDraftedModel(modelName, flags, context);
  const prompt = input === undefined ? undefined : conversationOf(model, input, images, flags);
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
  using session = await files.open(model, signal);
  // written with the first piece, since on a terminal the progress bar would erase its last line
  let shown = isStreaming && flags.displayPrompt === true ? shownPrompt(model, input) : '';
  progress.wait('prompt');
  const generation = prompt === undefined ? session.resume(options) : session.generate(prompt, options);
  const streamed = await streamGeneration(generation, async (piece) => {
    progress.clear();
    if (isStreaming) await out.write(shown + piece);
    shown = '';
  }).catch((error: unknown) => {
    throw files.withoutSave(error);
  });
  progress.clear();
  if (shown !== '') await out.write(shown);
  // Also after Ctrl-C, so that no computation is lost.
  const unsaved = await files.save(session);
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
  if (unsaved !== undefined) throw unsaved;
  if (streamed.error !== undefined) throw signal.aborted ? new InterruptedError() : streamed.error;
  if (streamed.result) report(streamed.result, model, flags, context, warn);
}

/** Undefined to resume a restored session. */
async function promptOf(
  modelName: string | undefined,
  flags: RunFlags,
  { io, signal }: CommandContext,
): Promise<string | readonly number[] | undefined> {
  const hasText = flags.prompt !== undefined || flags.file !== undefined;
  if (flags.tokens !== undefined) {
    const other = flags.chat === true ? '--chat' : '--prompt or --file';
    if (hasText || flags.chat === true) throw new UsageError(`--tokens: cannot be combined with ${other}`);
    return flags.tokens;
  }
  if (flags.loadSession !== undefined && !hasText) {
    if (flags.image !== undefined) throw new UsageError('--image: requires a prompt from -p or -f');
    return undefined;
  }
  const text = await readText(io, flags, signal);
  if (text === undefined) {
    throw meantAsPrompt(modelName, '--prompt: expected a prompt from -p, -f, --tokens or a pipe, got none');
  }
  if (text === '' && flags.prompt === undefined) {
    const source = flags.file === undefined || flags.file === '-' ? 'an empty stdin' : `the empty file ${flags.file}`;
    throw meantAsPrompt(modelName, `--prompt: expected a prompt, got ${source}`);
  }
  return flags.escape === true && flags.prompt !== undefined ? unescapeText(text) : text;
}

/** The error; an argument that is not a model may have been meant as the prompt. */
function meantAsPrompt(modelName: string | undefined, message: string): UsageError {
  const error = new UsageError(message);
  if (modelName === undefined || modelName === '' || isModel(modelName)) return error;
  return suggest(error, { argument: modelName, instead: ['-p', modelName] });
}

function shownPrompt(model: Model, input: string | readonly number[] | undefined): string {
  return typeof input === 'object' ? model.tokenizer.decode(input) : (input ?? '');
}

/** Without a template, image tokens that the prompt lacks are put before it. */
function withImages(model: Model, input: string | readonly number[], images: readonly Uint8Array[]): Prompt {
  if (images.length === 0) return input;
  const { imageToken } = model;
  if (imageToken === undefined || typeof input !== 'string') return { prompt: input, images };
  const numMissing = images.length - (input.split(imageToken).length - 1);
  return { prompt: `${imageToken}\n`.repeat(Math.max(0, numMissing)) + input, images };
}

function conversationOf(
  model: Model,
  input: string | readonly number[],
  images: readonly Uint8Array[],
  flags: RunFlags,
): Prompt {
  if (flags.chat !== true) return withImages(model, input, images);
  if (model.chatTemplate === undefined) {
    throw new UsageError(`--chat: expected a model with a chat template, got ${model.name}, which has none`);
  }
  const system = flags.system === undefined ? [] : [{ role: 'system', content: flags.system }];
  return [...system, { role: 'user', content: String(input), ...(images.length === 0 ? {} : { images }) }];
}

/** The object of `--json`; an aborted generation reports the tokens up to the abort. */
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
    satisfiesConstraint: result?.satisfiesConstraint ?? null,
    seed: sampling.seed ?? null,
    contextSize: model.contextSize,
    timings: result?.timings ?? null,
    speculation: result?.speculation ?? null,
    backend: model.backend,
    fallbacks: model.fallbacks,
    metrics: model.metrics(),
  };
}

/** Peak bandwidth and compute of this machine, if the backend can measure them. Measured while nothing else runs. */
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
    const policy = flags.overflow === undefined ? 'as in the saved session' : `--overflow ${flags.overflow}`;
    warn(`the context was full: ${result.evictedTokens} tokens were evicted (${policy})`);
  }
  if (result.finishReason === 'context') warn(`the context of ${model.contextSize} tokens is full`);
  const wantsSummary = flags.summary === true || (io.stderr.isTTY === true && flags.json !== true);
  if (wantsSummary) warn(summaryLine(result));
  checkConstraint(result);
}

function endsLine(text: string): boolean {
  return text === '' || text.endsWith('\n');
}
