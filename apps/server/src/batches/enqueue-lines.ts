/** Adds the lines of an input to a job store. */
import type { EnqueueOptions, JobStore, NewJob } from '@winnow/jobs';
import type { BatchEndpoint } from '../schemas/batches.js';
import { batchQueueOf, LineError, parseBatchLine, type BatchLine, type LinePayload } from './batch-line.js';
import { splitLines, type Line } from './split-lines.js';

/** The queue of each line is its model (`batchQueueOf`). */
export interface EnqueueLinesOptions extends Omit<EnqueueOptions, 'queue'> {
  /** Whose lines these are: owners do not share prefixes in the KV cache. Default: they are shared with all lines without an owner. */
  readonly owner?: string;
  /** The only endpoint that lines may name. Default: each line may name any. */
  readonly endpoint?: BatchEndpoint;
  /** Maximum size of a line in bytes. Default 4 MiB. */
  readonly maxLineBytes?: number;
  /** Whether lines that begin alike are answered one after the other, so that they share cached pages. Default true. */
  readonly prefixGrouping?: boolean;
  readonly signal?: AbortSignal;
  /** Called after each part of the input with the number of lines so far. */
  readonly onProgress?: (numLines: number) => void;
}

export interface EnqueuedLines {
  readonly numLines: number;
  /** Lines that have failed, because they are not in the format or repeat a `custom_id`. */
  readonly numRejected: number;
  /** What the other lines ask for. */
  readonly endpoints: ReadonlySet<BatchEndpoint>;
}

/** Lines per transaction of the store. */
const linesPerCall = 500;
const defaultMaxLineBytes = 4 * 2 ** 20;

/**
 * A line that is not in the format becomes a job that has failed, with its error. Lines that the store has already, from
 * an earlier call with the same input, stay as they are.
 * @param chunks of a file with a request per line, in OpenAI's batch format
 */
export async function enqueueBatchLines(
  store: JobStore,
  batchId: string,
  chunks: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
  options: EnqueueLinesOptions = {},
): Promise<EnqueuedLines> {
  const {
    endpoint,
    maxLineBytes = defaultMaxLineBytes,
    prefixGrouping = true,
    signal,
    onProgress,
    owner,
    ...queued
  } = options;
  const endpoints = new Set<BatchEndpoint>();
  let [numLines, numRejected] = [0, 0];
  let jobs: NewJob[] = [];
  const flush = async (): Promise<void> => {
    signal?.throwIfAborted();
    const { conflicts } = await store.enqueue(batchId, jobs, queued);
    const repeated = jobs.filter(({ index }) => conflicts.includes(index)).map(repeatedJob);
    if (repeated.length > 0) await store.enqueue(batchId, repeated, queued);
    numRejected += repeated.length;
    jobs = [];
    onProgress?.(numLines);
  };
  for await (const line of splitLines(chunks, maxLineBytes)) {
    numLines++;
    const job = jobOf(line, endpoint, owner);
    if (job.error === undefined) endpoints.add((JSON.parse(job.payload) as LinePayload).url);
    else numRejected++;
    jobs.push(prefixGrouping ? job : { ...job, group: '' });
    if (jobs.length === linesPerCall) await flush();
  }
  if (jobs.length > 0) await flush();
  return { numLines, numRejected, endpoints };
}

function jobOf(line: Line, endpoint: BatchEndpoint | undefined, owner: string | undefined): NewJob {
  const index = line.number - 1;
  let parsed: BatchLine;
  try {
    parsed = parseBatchLine(line, endpoint);
  } catch (error) {
    if (!(error instanceof LineError)) throw error;
    return { customId: rejectedId(line.number), index, payload: '', error: error.toJobError(line.number) };
  }
  const { customId, url, body, group } = parsed;
  const payload: LinePayload = { url, body, ...(owner === undefined ? {} : { owner }) };
  const queue = batchQueueOf(url, body['model']);
  return { customId, index, payload: JSON.stringify(payload), group, queue };
}

function repeatedJob({ customId, index }: NewJob): NewJob {
  const message = `custom_id: '${customId}' is the id of an earlier line`;
  const error = new LineError('duplicate_custom_id', message, customId).toJobError(index + 1);
  return { customId: rejectedId(index + 1), index, payload: '', error };
}

/** The id of a rejected line; its control character cannot occur in an id of a valid one. */
function rejectedId(lineNumber: number): string {
  return `\u0001line ${lineNumber}`;
}
