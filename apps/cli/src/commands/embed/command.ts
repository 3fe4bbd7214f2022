/** `winnow embed`: texts to vectors. */
import type { Command } from 'commander';
import type { EmbeddingModel, EmbeddingProgress, TextEmbedding, TokenOutput } from '@winnow/engine';
import { ArgumentError } from '@winnow/tensor';
import type { CommandContext, CommandHost } from '../command-host.js';
import { UsageError } from '../../errors/errors.js';
import { displayName } from '../../models/model-location.js';
import { shortestFloat } from '../../terminal/format.js';
import { npyFile } from '../../terminal/npy.js';
import { readLines } from '../../terminal/read-text.js';
import { addGroup, flag, numberOption, numberRules } from '../../flags/builders.js';
import { describe } from '../../flags/help.js';
import { addModelOption, addOutputOptions, chooseModel } from '../../flags/load.js';
import {
  addEmbeddingOptions,
  embeddingError,
  embeddingLoadOptionsOf,
  embedOptionsOf,
  type EmbeddingFlags,
} from '../../flags/embedding.js';
import { queueOf, queueOption } from '../queue/open-queue.js';
import { embedByQueue } from './queued.js';
import { openEmbeddingModel } from '../../models/open-embedding-model.js';
import { writeOutputFile } from '../../terminal/write-file.js';

export interface EmbedFlags extends EmbeddingFlags {
  readonly prompt?: readonly string[];
  readonly file?: string;
  readonly npy?: boolean;
  readonly jsonl?: boolean;
  readonly sparse?: boolean;
  readonly multiVector?: boolean;
  readonly rowsPerFile?: number;
  readonly queue?: string;
  readonly modelId?: string;
  readonly cancel?: boolean;
  readonly output?: string;
  readonly normalize: boolean;
}

const queueFlags: Readonly<Partial<Record<keyof EmbedFlags, string>>> = {
  jsonl: '--jsonl',
  rowsPerFile: '--rows-per-file',
  modelId: '--model-id',
  cancel: '--cancel',
};

const examples = `
Examples:
  $ winnow embed model.gguf -p 'A man is dancing.' 'Somebody dances.'
  $ winnow embed ./bge-small-en-v1.5 --file lines.txt --npy -o vectors.npy
  $ winnow embed model.gguf --file - --json --overflow chunk-average < lines.txt
  $ winnow embed --file corpus.txt --queue jobs.db --npy -o vectors --rows-per-file 100000

Each line of a file is a text. The output has one line of numbers per text; --json prints one object, --npy writes 32-bit
floats of shape [texts, dimensions]. Vectors are normalized, so dot products are cosines. With --queue, the workers of
winnow worker --embedding-model embed the texts, in any number of processes: files of any size, and the same command
continues after a crash. A text that fails has NaN for a vector, and its error is in OUTPUT.errors.jsonl.
`;

export function registerEmbed(program: Command, host: CommandHost): void {
  const command = program.command('embed').argument('[model]', 'the model (default: the demo model, with --pooling)');
  addGroup(addModelOption(command), {
    heading: 'Texts',
    common: [
      flag('-p, --prompt <text...>', 'the texts'),
      flag('-f, --file <path>', 'file with one text per line, - for stdin'),
    ],
  });
  addEmbeddingOptions(command);
  addOutputOptions(command, 'print one JSON object: embeddings, tokens, ...');
  addGroup(command, {
    heading: 'Output',
    common: [
      flag('--npy', 'write a NumPy file'),
      flag('--jsonl', 'with --queue: write a line of JSON per text: line, text, embedding'),
      flag('-o, --output <path>', 'output file (default: stdout)'),
    ],
    advanced: [
      flag('--sparse', 'with --json: the lexical weights of each text, of models such as BGE-M3'),
      flag('--multi-vector', 'with --json: a vector per token, of models such as BGE-M3'),
      flag('--no-normalize', 'do not normalize vectors to length 1'),
    ],
  });
  addGroup(command, {
    heading: 'Queue',
    common: [queueOption('let the workers of a queue embed the texts of --file, and wait for them')],
    advanced: [
      flag('--model-id <id>', "id of the workers' model (default: that of workers with one embedding model)"),
      numberOption(
        '--rows-per-file <n>',
        'write files of this many texts each to the folder OUTPUT',
        numberRules.count,
      ),
      flag('--cancel', 'take the texts out of the queue, without results'),
    ],
  });
  describe(command, 'Embeds texts as vectors.', examples);
  command.action((model: string | undefined, flags: EmbedFlags) =>
    host.run(flags, (context) => embed(chooseModel(model, flags.model), flags, context)),
  );
}

async function embed(modelName: string | undefined, flags: EmbedFlags, context: CommandContext): Promise<void> {
  const { io, signal, progress, warn, out } = context;
  // texts of the command line are no work for a queue of the environment
  const queue = flags.file === undefined ? flags.queue : queueOf(flags, io);
  if (queue !== undefined) return embedByQueue(modelName, queue, flags, context);
  const queued = Object.entries(queueFlags).find(([name]) => flags[name as keyof EmbedFlags] !== undefined);
  if (queued !== undefined) throw new UsageError(`${queued[1]}: requires --queue`);
  if (flags.json === true && flags.npy === true)
    throw new UsageError('--npy: expected one format, got --json and --npy');
  if (flags.npy === true && flags.output === undefined && out.isTerminal) {
    throw new UsageError('--npy: expected -o PATH or a redirected stdout, got a terminal');
  }
  const outputs = tokenOutputsOf(flags);
  const { prompt: given, file } = flags;
  const texts = await readLines(io, { flagName: '--prompt', noun: 'texts', given, file }, signal);
  await using model = await openEmbeddingModel(modelName, embeddingLoadOptionsOf(flags), context);
  const options = {
    ...embedOptionsOf(flags),
    ...(flags.normalize ? {} : { normalize: false }),
    outputs,
    signal,
    onProgress: ({ embeddedTexts, totalTexts }: EmbeddingProgress) =>
      progress.show('embed', embeddedTexts, totalTexts, 'texts'),
  };
  const embedded = await model.embedTexts(texts, options).catch((error: unknown) => {
    throw outputError(error, outputs);
  });
  progress.clear();
  const cut = embedded.filter(({ numDroppedTokens }) => numDroppedTokens > 0);
  // queries of ColBERT models have fewer than the context
  if (cut[0] !== undefined) warn(`${cut.length} of ${texts.length} texts were truncated to ${cut[0].numTokens} tokens`);
  const parts =
    flags.npy === true
      ? [
          npyFile(
            embedded.map(({ vector }) => vector),
            embedded[0]?.vector.length ?? model.dimensions,
          ),
        ]
      : flags.json === true
        ? jsonParts(displayName(modelName, model.name), model, embedded)
        : embedded.map(({ vector }) => `${Array.from(vector, shortestFloat).join(' ')}\n`);
  await writeParts(parts, flags.output, context);
}

/** Flags of outputs besides vectors. */
const outputFlags: Readonly<Record<TokenOutput, string>> = { sparse: '--sparse', multiVector: '--multi-vector' };

/** @throws {UsageError} without --json, since the other formats have one vector per text */
function tokenOutputsOf(flags: EmbedFlags): TokenOutput[] {
  const outputs = (Object.keys(outputFlags) as TokenOutput[]).filter((output) => flags[output] === true);
  const [first] = outputs;
  if (first !== undefined && flags.json !== true) throw new UsageError(`${outputFlags[first]}: requires --json`);
  return outputs;
}

function outputError(error: unknown, asked: readonly TokenOutput[]): unknown {
  const refused = ArgumentError.isInstance(error) && error.argument === 'outputs' ? error : undefined;
  const output = asked.find((each) => each === refused?.actual);
  if (refused === undefined || output === undefined)
    return embeddingError(error, ', which --json --multi-vector prints');
  return new UsageError(`${outputFlags[output]}: expected ${refused.expected}`);
}

/** Written in parts: the vectors of a long file would not fit into one string. */
function* jsonParts(name: string, model: EmbeddingModel, embedded: readonly TextEmbedding[]): Generator<string> {
  const { backend, pooling, contextSize } = model;
  const head = {
    model: name,
    backend,
    pooling,
    contextSize,
    // models with multi-vectors only have no other vectors
    dimensions: embedded[0]?.vector.length || model.dimensions,
    tokens: embedded.map(({ numTokens }) => numTokens),
    chunks: embedded.map(({ numChunks }) => numChunks),
    droppedTokens: embedded.map(({ numDroppedTokens }) => numDroppedTokens),
  };
  yield JSON.stringify(head).slice(0, -1);
  yield* listParts('embeddings', embedded, ({ vector }) => numbers(vector));
  if (embedded[0]?.sparse !== undefined) {
    yield* listParts('sparse', embedded, ({ sparse: { indices, values } = { indices: [], values: [] } }) => {
      return `{"indices":[${Array.from(indices).join(',')}],"values":${numbers(values)}}`;
    });
  }
  if (embedded[0]?.multiVector !== undefined) {
    yield* listParts('multiVectors', embedded, ({ multiVector = [] }) => `[${multiVector.map(numbers).join(',')}]`);
  }
  yield '}\n';
}

/** A field with a value for each text. */
function* listParts(
  name: string,
  embedded: readonly TextEmbedding[],
  write: (text: TextEmbedding) => string,
): Generator<string> {
  yield `,"${name}":[`;
  for (const [index, text] of embedded.entries()) yield `${index === 0 ? '' : ',\n'}${write(text)}`;
  yield ']';
}

function numbers(values: ArrayLike<number>): string {
  return `[${Array.from(values, shortestFloat).join(',')}]`;
}

async function writeParts(
  parts: Iterable<string | Uint8Array>,
  path: string | undefined,
  { out, signal }: CommandContext,
): Promise<void> {
  if (path === undefined) {
    for (const part of parts) await out.write(part);
    return;
  }
  await writeOutputFile(path, parts, signal);
}
