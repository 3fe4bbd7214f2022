/** Blobs as objects of a bucket. */
import {
  DeleteObjectCommand,
  HeadObjectCommand,
  paginateListObjectsV2,
  PutObjectCommand,
  S3Client,
} from '@aws-sdk/client-s3';
import {
  BlobError,
  checkInteger,
  checkKey,
  existingBlob,
  type BlobCallOptions,
  type BlobContent,
  type BlobInfo,
  type BlobStore,
  type ReadBlobOptions,
  type WriteBlobOptions,
  type WrittenBlob,
} from '@winnow/jobs';
import { callOptionNames, Checksum, counted, readOptionNames, writeOptionNames } from '@winnow/jobs/node';
import { ArgumentError, checkOptions, type OptionNames } from '@winnow/tensor';
import { s3Error } from './errors.js';
import { MultipartUpload, sendOptions, type ObjectPlace } from './multipart-upload.node.js';
import { partsOf, Window } from './parts.js';
import { readObject } from './read-object.node.js';

export interface S3Credentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string;
}

export interface S3BlobStoreOptions {
  /** URL of a compatible service. Default: `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL`, else that of AWS. */
  readonly endpoint?: string;
  /** Default: `AWS_REGION` or the AWS profile, else `us-east-1`. */
  readonly region?: string;
  /** Default: as the AWS SDK finds them: environment, profile, web identity, instance metadata. */
  readonly credentials?: S3Credentials;
  /** Whether URLs have the bucket in their path instead of their host. Default: true with an endpoint. */
  readonly isPathStyle?: boolean;
  /** Content above this size is sent in parts of this size, of which there may be 10,000; at least 5 MiB. Default 16 MiB. */
  readonly partBytes?: number;
  /** Maximum number of parts sent at once; a write holds one more in memory. Default 3. */
  readonly concurrency?: number;
  /** Maximum number of attempts per request, and of consecutive attempts of a read without progress. Default 5. */
  readonly maxAttempts?: number;
  /** Maximum time in milliseconds to connect, and then to wait for more bytes. Default 10 000. */
  readonly timeoutMs?: number;
}

const optionNames: OptionNames<S3BlobStoreOptions> = {
  endpoint: true,
  region: true,
  credentials: { accessKeyId: true, secretAccessKey: true, sessionToken: true },
  isPathStyle: true,
  partBytes: true,
  concurrency: true,
  maxAttempts: true,
  timeoutMs: true,
};

const minPartBytes = 5 * 2 ** 20;

/**
 * The objects of a bucket whose keys begin with a prefix. `ifAbsent` is atomic if the service supports `If-None-Match` for
 * writes.
 * @param url `s3://bucket` or `s3://bucket/prefix`
 * @throws {ArgumentError}
 */
export function createS3BlobStore(url: string, options: S3BlobStoreOptions = {}): BlobStore {
  checkOptions(options, optionNames);
  const { partBytes = 16 * 2 ** 20, concurrency = 3, maxAttempts = 5, timeoutMs = 10_000 } = options;
  const [, bucket, prefix = ''] = /^s3:\/\/([a-z0-9][a-z0-9.-]+)(?:\/(.*))?$/.exec(url) ?? [];
  if (bucket === undefined) {
    throw new ArgumentError({ argument: 'url', expected: 's3://bucket or s3://bucket/prefix', actual: url });
  }
  checkInteger('partBytes', partBytes, minPartBytes);
  checkInteger('concurrency', concurrency, 1);
  checkInteger('maxAttempts', maxAttempts, 1);
  checkInteger('timeoutMs', timeoutMs, 1);
  const client = createClient({ ...options, maxAttempts, timeoutMs });
  return new S3BlobStore(client, bucket, prefix.replace(/\/*$/, ''), { partBytes, concurrency, maxAttempts });
}

function createClient(options: S3BlobStoreOptions & { readonly timeoutMs: number }): S3Client {
  const { AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION, AWS_PROFILE } = process.env;
  const { endpoint = AWS_ENDPOINT_URL_S3 ?? AWS_ENDPOINT_URL, region, credentials, maxAttempts, timeoutMs } = options;
  const hasRegion = region !== undefined || AWS_REGION !== undefined || AWS_PROFILE !== undefined;
  return new S3Client({
    ...(endpoint === undefined ? {} : { endpoint }),
    ...(hasRegion ? {} : { region: 'us-east-1' }),
    ...(region === undefined ? {} : { region }),
    ...(credentials === undefined ? {} : { credentials: { ...credentials } }), // the client adds to them
    ...(maxAttempts === undefined ? {} : { maxAttempts }),
    forcePathStyle: options.isPathStyle ?? endpoint !== undefined,
    // the SDK's own checksums, which compatible services may not support
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    requestHandler: { connectionTimeout: timeoutMs, socketTimeout: timeoutMs },
  });
}

interface Limits {
  readonly partBytes: number;
  readonly concurrency: number;
  readonly maxAttempts: number;
}

class S3BlobStore implements BlobStore {
  readonly name: string;
  readonly canList = true;
  readonly canResume = true;
  readonly #client: S3Client;
  readonly #bucket: string;
  readonly #prefix: string;
  readonly #limits: Limits;

  constructor(client: S3Client, bucket: string, prefix: string, limits: Limits) {
    this.#client = client;
    this.#bucket = bucket;
    this.#prefix = prefix === '' ? '' : `${prefix}/`;
    this.name = `s3://${bucket}/${prefix}`.replace(/\/$/, '');
    this.#limits = limits;
  }

  async write(key: string, content: BlobContent, options: WriteBlobOptions = {}): Promise<WrittenBlob> {
    checkOptions(options, writeOptionNames);
    const { ifAbsent = false, signal } = options;
    const source = this.#urlOf(key);
    // finds most existing contents before anything is sent
    if (ifAbsent && (await this.stat(key, callOf(signal))) !== undefined) throw existingBlob(source);
    const checksum = new Checksum();
    const parts = partsOf(counted(content, checksum, signal), this.#limits.partBytes);
    try {
      const first = (await parts.next()).value ?? new Uint8Array(0);
      const second = (await parts.next()).value;
      const sent =
        second === undefined
          ? await this.#sendWhole(key, first, checksum, options)
          : await this.#sendParts(key, follow([first, second], parts), checksum, options);
      return { key, sizeBytes: checksum.sizeBytes, ...sent };
    } catch (error) {
      await parts.return();
      throw s3Error(error, source, 'write', signal);
    }
  }

  async *read(key: string, options: ReadBlobOptions = {}): AsyncGenerator<Uint8Array, void, void> {
    checkOptions(options, readOptionNames);
    const source = this.#urlOf(key);
    yield* readObject({ ...this.#placeOf(key), source, maxAttempts: this.#limits.maxAttempts }, options);
  }

  async stat(key: string, options: BlobCallOptions = {}): Promise<BlobInfo | undefined> {
    checkOptions(options, callOptionNames);
    const source = this.#urlOf(key);
    const { client, bucket: Bucket, key: Key } = this.#placeOf(key);
    try {
      const found = await client.send(new HeadObjectCommand({ Bucket, Key }), sendOptions(options.signal));
      return infoOf(key, found.ContentLength, found.LastModified, found.ETag);
    } catch (error) {
      const known = s3Error(error, source, 'stat', options.signal);
      if (BlobError.isInstance(known) && known.reason === 'missing') return undefined;
      throw known;
    }
  }

  async delete(key: string, options: BlobCallOptions = {}): Promise<boolean> {
    if ((await this.stat(key, options)) === undefined) return false;
    const { client, bucket: Bucket, key: Key } = this.#placeOf(key);
    try {
      await client.send(new DeleteObjectCommand({ Bucket, Key }), sendOptions(options.signal));
      return true;
    } catch (error) {
      throw s3Error(error, this.#urlOf(key), 'delete', options.signal);
    }
  }

  async list(prefix: string, options: BlobCallOptions = {}): Promise<BlobInfo[]> {
    checkOptions(options, callOptionNames);
    const infos: BlobInfo[] = [];
    const input = { Bucket: this.#bucket, Prefix: `${this.#prefix}${prefix}` };
    try {
      const pages = paginateListObjectsV2({ client: this.#client }, input, sendOptions(options.signal));
      for await (const { Contents = [] } of pages) {
        for (const { Key = '', Size, LastModified, ETag } of Contents) {
          infos.push(infoOf(Key.slice(this.#prefix.length), Size, LastModified, ETag));
        }
      }
    } catch (error) {
      throw s3Error(error, `${this.name}/${prefix}`, 'list', options.signal);
    }
    return infos.toSorted((a, b) => (a.key < b.key ? -1 : 1));
  }

  async #sendWhole(key: string, bytes: Uint8Array, checksum: Checksum, options: WriteBlobOptions): Promise<Sent> {
    const { client, bucket: Bucket, key: Key } = this.#placeOf(key);
    const sha256 = checksum.end(this.#urlOf(key), options.sha256);
    const ChecksumSHA256 = Buffer.from(sha256, 'hex').toString('base64');
    const object = { Bucket, Key, Body: bytes, ContentLength: bytes.byteLength, ChecksumSHA256 };
    const command = new PutObjectCommand({ ...object, ...(options.ifAbsent === true && { IfNoneMatch: '*' }) });
    await client.send(command, sendOptions(options.signal));
    return { sha256, resumedBytes: 0 };
  }

  async #sendParts(
    key: string,
    parts: AsyncIterable<Uint8Array>,
    checksum: Checksum,
    { sha256: expected, ifAbsent = false, resume = false, signal }: WriteBlobOptions,
  ): Promise<Sent> {
    const upload = await MultipartUpload.begin(this.#placeOf(key), resume, signal);
    const window = new Window(this.#limits.concurrency);
    try {
      let numParts = 0;
      for await (const part of parts) {
        const number = ++numParts;
        await window.add(() => upload.send(number, part));
      }
      await window.end();
      const sha256 = checksum.end(this.#urlOf(key), expected);
      await upload.complete(ifAbsent);
      return { sha256, resumedBytes: upload.resumedBytes };
    } catch (error) {
      await window.end().catch(() => undefined); // the error that comes first is thrown
      const isOther = BlobError.isInstance(error) && error.reason === 'checksum';
      if (!resume || isOther) await upload.discard().catch(() => undefined); // the store's lifecycle rules remove the rest
      throw error;
    }
  }

  #placeOf(key: string): ObjectPlace {
    return { client: this.#client, bucket: this.#bucket, key: `${this.#prefix}${key}` };
  }

  #urlOf(key: string): string {
    checkKey(key);
    return `${this.name}/${key}`;
  }
}

type Sent = Pick<WrittenBlob, 'sha256' | 'resumedBytes'>;

const callOf = (signal: AbortSignal | undefined): BlobCallOptions => (signal === undefined ? {} : { signal });

function infoOf(key: string, sizeBytes = 0, modified?: Date, version?: string): BlobInfo {
  const modifiedAt = modified === undefined ? {} : { modifiedAtMs: modified.getTime() };
  return { key, sizeBytes, ...modifiedAt, ...(version === undefined ? {} : { version }) };
}

async function* follow(
  first: readonly Uint8Array[],
  rest: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array, void, void> {
  yield* first;
  yield* rest;
}
