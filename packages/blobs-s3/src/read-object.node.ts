/** Reads an object, and continues after a failure from the byte where it occurred. */
import type { Readable } from 'node:stream';
import { GetObjectCommand, HeadObjectCommand, type GetObjectCommandOutput } from '@aws-sdk/client-s3';
import { BlobError, endOf, isWhole, type ReadBlobOptions } from '@winnow/jobs';
import { Checksum } from '@winnow/jobs/node';
import { s3Error } from './errors.js';
import { sendOptions, type ObjectPlace } from './multipart-upload.node.js';

export interface ReadPlace extends ObjectPlace {
  /** Name in errors. */
  readonly source: string;
  /** Of a read without progress. */
  readonly maxAttempts: number;
}

export async function* readObject(place: ReadPlace, options: ReadBlobOptions): AsyncGenerator<Uint8Array, void, void> {
  const { source, maxAttempts } = place;
  const { byteOffset = 0, sha256, signal } = options;
  const { sizeBytes, etag } = await find(place, signal);
  const end = endOf(options, sizeBytes);
  const checksum = isWhole(options, end, sizeBytes) ? new Checksum() : undefined;
  let numFailures = 0;
  for (let offset = byteOffset; offset < end;) {
    const before = offset;
    try {
      for await (const bytes of bodyOf(await get(place, offset, end, etag, signal))) {
        checksum?.add(bytes);
        offset += bytes.byteLength;
        yield bytes;
      }
      if (offset < end) throw new Error(`the connection was closed at byte ${offset}, expected ${end}`);
    } catch (cause) {
      const error = s3Error(cause, source, 'read', signal);
      numFailures = offset > before ? 1 : numFailures + 1;
      const isTransient = BlobError.isInstance(error) && error.reason === 'unavailable';
      if (!isTransient || numFailures >= maxAttempts) throw error;
    }
  }
  checksum?.end(source, sha256);
}

async function find(
  { client, bucket: Bucket, key: Key, source }: ReadPlace,
  signal: AbortSignal | undefined,
): Promise<{ readonly sizeBytes: number; readonly etag: string | undefined }> {
  try {
    const { ContentLength = 0, ETag: etag } = await client.send(
      new HeadObjectCommand({ Bucket, Key }),
      sendOptions(signal),
    );
    return { sizeBytes: ContentLength, etag };
  } catch (error) {
    throw s3Error(error, source, 'read', signal);
  }
}

/** Of the version that was found, or none. */
async function get(
  { client, bucket: Bucket, key: Key }: ReadPlace,
  offset: number,
  end: number,
  etag: string | undefined,
  signal: AbortSignal | undefined,
): Promise<GetObjectCommandOutput> {
  const version = etag === undefined ? {} : { IfMatch: etag };
  const command = new GetObjectCommand({ Bucket, Key, Range: `bytes=${offset}-${end - 1}`, ...version });
  return client.send(command, sendOptions(signal));
}

const bodyOf = ({ Body }: GetObjectCommandOutput): AsyncIterable<Uint8Array> => Body as Readable;
