/** Reads an object, and continues after a failure from the byte where it occurred. */
import type { Readable } from 'node:stream';
import { GetObjectCommand, HeadObjectCommand } from '@aws-sdk/client-s3';
import type { ReadBlobOptions } from '@winnow/jobs';
import { readStream, type BlobAnswer } from '@winnow/jobs/node';
import { s3Error } from './errors.js';
import { sendOptions, type ObjectPlace } from './multipart-upload.node.js';

export interface ReadPlace extends ObjectPlace {
  /** Name in errors. */
  readonly source: string;
  /** Maximum number of consecutive attempts without progress. */
  readonly maxAttempts: number;
}

/** Short, because the client itself waits between its attempts to send a request. */
const retryDelayMs = 50;

export async function* readObject(place: ReadPlace, options: ReadBlobOptions): AsyncGenerator<Uint8Array, void, void> {
  const { source, maxAttempts } = place;
  const { signal } = options;
  const open = (offset: number, end: number | undefined): Promise<BlobAnswer> =>
    offset === end ? find(place, signal) : get(place, offset, end, signal);
  const errorOf = (cause: unknown): unknown => s3Error(cause, source, 'read', signal);
  yield* readStream({ source, maxAttempts, retryDelayMs, open, errorOf }, options);
}

/** Answers a read of zero bytes, for which no range exists. */
async function find(
  { client, bucket: Bucket, key: Key }: ReadPlace,
  signal: AbortSignal | undefined,
): Promise<BlobAnswer> {
  const command = new HeadObjectCommand({ Bucket, Key });
  const { ContentLength: sizeBytes = 0, ETag } = await client.send(command, sendOptions(signal));
  return { sizeBytes, body: nothing(), version: ETag };
}

/** Requests bytes; the answer says of which version. */
async function get(
  place: ReadPlace,
  offset: number,
  end: number | undefined,
  signal: AbortSignal | undefined,
): Promise<BlobAnswer> {
  const { client, bucket: Bucket, key: Key } = place;
  // an empty object has no ranges, so it is requested without one
  const isWhole = offset === 0 && end === undefined;
  const range = isWhole ? {} : { Range: `bytes=${offset}-${end === undefined ? '' : end - 1}` };
  const command = new GetObjectCommand({ Bucket, Key, ...range });
  try {
    const { Body, ContentLength = 0, ContentRange, ETag } = await client.send(command, sendOptions(signal));
    const total = /\/(\d+)$/.exec(ContentRange ?? '')?.[1];
    const sizeBytes = total === undefined ? ContentLength : Number(total);
    const body = Body as Readable;
    return { sizeBytes, body, version: ETag, discard: async () => void body.destroy() };
  } catch (error) {
    const { $metadata } = error as { readonly $metadata?: { readonly httpStatusCode?: number } };
    if ($metadata?.httpStatusCode !== 416) throw error;
    return find(place, signal); // there are no bytes from `offset` on
  }
}

async function* nothing(): AsyncGenerator<Uint8Array, void, void> {}
