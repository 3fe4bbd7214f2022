/** `winnow embed --queue`: the texts of a file go to workers in shards, and their vectors to files. */
import type { JobInfo, JobStore, NewJob } from '@winnow/jobs';
import { definedFields } from '@winnow/tensor';
import { UsageError } from '../../errors/errors.js';
import { embedOptionsOf } from '../../flags/embedding.js';
import { hashOfFile, linesOfFile } from '../../terminal/read-text.js';
import type { CommandContext } from '../command-host.js';
import { endedJobs, maxAttempts, placedId, runQueued } from '../queue/queued-work.js';
import { textQueueOf, type EmbeddedShard, type ShardOptions, type TextShard } from '../queue/text-shards.js';
import type { EmbedFlags } from './command.js';
import { VectorFiles, type VectorFormat } from './vector-files.js';

/** Limits of a shard: the work that a worker does at a time, and that is lost if it is killed. */
const textsPerShard = 64;
const charactersPerShard = 256 * 1024;
const shardsPerCall = 50;

/** Flags of models, which are loaded by workers, and of outputs that are not files. */
const otherFlags: Readonly<Partial<Record<keyof EmbedFlags, string>>> = {
  prompt: '--prompt',
  json: '--json',
  sparse: '--sparse',
  multiVector: '--multi-vector',
  pooling: '--pooling',
  context: '--context',
  batchSize: '--batch-size',
  quantize: '--quantize',
  threads: '--threads',
  backend: '--backend',
  memory: '--memory',
  sparsity: '--sparsity',
};

/** @throws {InterruptedError} by Ctrl-C and SIGTERM; workers go on */
export async function embedByQueue(
  modelName: string | undefined,
  url: string,
  flags: EmbedFlags,
  context: CommandContext,
): Promise<void> {
  const other = Object.entries(otherFlags).find(([name]) => flags[name as keyof EmbedFlags] !== undefined);
  if (other !== undefined) throw new UsageError(`${other[1]}: cannot be combined with --queue`);
  if (modelName !== undefined) throw new UsageError('model: cannot be combined with --queue, whose workers have it');
  const { file, output, modelId } = flags;
  if (file === undefined || file === '-') throw new UsageError('--queue: requires --file PATH');
  if (output === undefined) throw new UsageError('--queue: requires --output');
  const options: ShardOptions = { ...embedOptionsOf(flags), ...(flags.normalize ? {} : { normalize: false }) };
  const hash = await hashOfFile(file, 'a file of texts', context.signal);
  const batchId = placedId(`embed ${hash} ${JSON.stringify([modelId, options])}`, output);
  const work = {
    ...{ url, batchId, unit: 'parts' as const },
    enqueue: (store: JobStore) => enqueue(store, batchId, file, { options, modelId }, context),
    finish: (store: JobStore) => write(store, batchId, file, { ...flags, output }, context),
  };
  await runQueued(work, flags.cancel === true, context);
}

/** @returns the number of shards */
async function enqueue(
  store: JobStore,
  batchId: string,
  file: string,
  { options, modelId }: { readonly options: ShardOptions; readonly modelId: string | undefined },
  { signal, progress }: CommandContext,
): Promise<number> {
  progress.wait(`read ${file}`);
  let jobs: NewJob[] = [];
  let [numShards, begin] = [0, 0];
  const flush = async (): Promise<void> => {
    await store.enqueue(batchId, jobs, { queue: textQueueOf(modelId), maxAttempts });
    jobs = [];
  };
  for await (const texts of shardsOf(linesOfFile(file, signal))) {
    const payload: TextShard = { texts, options };
    jobs.push({ customId: `${begin}-${texts.length}`, index: numShards++, payload: JSON.stringify(payload) });
    begin += texts.length;
    if (jobs.length === shardsPerCall) await flush();
  }
  if (jobs.length > 0) await flush();
  progress.clear();
  return numShards;
}

async function* shardsOf(texts: AsyncIterable<string>): AsyncGenerator<readonly string[], void, void> {
  let shard: string[] = [];
  let numCharacters = 0;
  for await (const text of texts) {
    if (shard.length === textsPerShard || (shard.length > 0 && numCharacters + text.length > charactersPerShard)) {
      yield shard;
      [shard, numCharacters] = [[], 0];
    }
    shard.push(text);
    numCharacters += text.length;
  }
  if (shard.length > 0) yield shard;
}

/** The first text of a shard, and how many it has. */
function rangeOf({ customId }: JobInfo): [begin: number, numTexts: number] {
  const [begin = 0, numTexts = 0] = customId.split('-').map(Number);
  return [begin, numTexts];
}

async function write(
  store: JobStore,
  batchId: string,
  file: string,
  flags: EmbedFlags & { readonly output: string },
  { warn, signal }: CommandContext,
): Promise<void> {
  const { numTexts, dimensions } = await sizesOf(store, batchId);
  const format: VectorFormat = flags.npy === true ? 'npy' : flags.jsonl === true ? 'jsonl' : 'text';
  const files = new VectorFiles(flags.output, {
    format,
    numTexts,
    dimensions,
    ...definedFields({ rowsPerFile: flags.rowsPerFile }),
  });
  const texts = linesOfFile(file, signal);
  let [numFailed, numTruncated] = [0, 0];
  try {
    for await (const job of endedJobs(store, batchId)) {
      const [begin, count] = rangeOf(job);
      const shard = job.result === undefined ? undefined : (JSON.parse(job.result) as EmbeddedShard);
      const errors = new Map(shard?.errors.map((error) => [error.text, error]));
      const vectors = vectorsOf(shard, count, dimensions);
      for (let i = 0; i < count; i++) {
        const error = shard === undefined ? job.error : errors.get(i);
        if (error !== undefined) numFailed++;
        const text = (await texts.next()).value as string;
        await files.write({ line: begin + i + 1, text, vector: vectors[i] as Float32Array, error });
      }
      numTruncated += shard?.numTruncated ?? 0;
    }
    await files.close();
  } catch (error) {
    await files.abort();
    throw error;
  }
  if (numTruncated > 0) warn(`${numTruncated} of ${numTexts} texts were truncated`);
  const failures = numFailed === 0 ? '' : `, ${numFailed} failed (${files.errorsPath})`;
  warn(`${numTexts - numFailed} of ${numTexts} texts embedded in ${flags.output}${failures}`);
}

/** Number of texts, and of values of a vector; 0 if no text has one. */
async function sizesOf(store: JobStore, batchId: string): Promise<{ numTexts: number; dimensions: number }> {
  let [numTexts, dimensions] = [0, 0];
  for await (const job of endedJobs(store, batchId)) {
    numTexts += rangeOf(job)[1];
    if (dimensions === 0 && job.result !== undefined) {
      dimensions = (JSON.parse(job.result) as EmbeddedShard).dimensions;
    }
  }
  return { numTexts, dimensions };
}

/** One per text; NaN for texts that failed. */
function vectorsOf(shard: EmbeddedShard | undefined, numTexts: number, dimensions: number): Float32Array[] {
  const bytes = Buffer.from(shard?.vectors ?? '', 'base64');
  const isEmpty = bytes.length === 0;
  return Array.from({ length: numTexts }, (_, text) =>
    Float32Array.from({ length: dimensions }, (_value, i) =>
      isEmpty ? Number.NaN : bytes.readFloatLE(4 * (text * dimensions + i)),
    ),
  );
}
