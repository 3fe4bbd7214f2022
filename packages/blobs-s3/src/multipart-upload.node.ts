/** A multipart upload: started or resumed, sent part by part, then completed or discarded. */
import { createHash } from 'node:crypto';
import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  ListMultipartUploadsCommand,
  paginateListParts,
  UploadPartCommand,
  type CompletedPart,
  type ListMultipartUploadsCommandInput,
  type ListMultipartUploadsCommandOutput,
  type MultipartUpload as MultipartUploadInfo,
  type S3Client,
} from '@aws-sdk/client-s3';
import { CapacityError } from '@winnow/tensor';

export interface ObjectPlace {
  readonly client: S3Client;
  readonly bucket: string;
  /** Key within the bucket. */
  readonly key: string;
}

export function sendOptions(signal: AbortSignal | undefined): { readonly abortSignal?: AbortSignal } {
  return signal === undefined ? {} : { abortSignal: signal };
}

/** A part that an unfinished upload has left in the store. */
interface LeftPart {
  readonly sizeBytes: number;
  readonly etag: string;
  readonly sha256: string | undefined;
}

/** Maximum number of parts of an object. */
const maxParts = 10_000;

export class MultipartUpload {
  readonly #place: ObjectPlace;
  readonly #id: string;
  readonly #left: ReadonlyMap<number, LeftPart>;
  readonly #signal: AbortSignal | undefined;
  readonly #parts: CompletedPart[] = [];
  resumedBytes = 0;

  private constructor(
    place: ObjectPlace,
    id: string,
    left: ReadonlyMap<number, LeftPart>,
    signal: AbortSignal | undefined,
  ) {
    this.#place = place;
    this.#id = id;
    this.#left = left;
    this.#signal = signal;
  }

  /** @param resume whether to continue the latest unfinished upload of the object, if there is one */
  static async begin(place: ObjectPlace, resume: boolean, signal: AbortSignal | undefined): Promise<MultipartUpload> {
    const unfinished = resume ? await unfinishedId(place, signal) : undefined;
    if (unfinished !== undefined) {
      return new MultipartUpload(place, unfinished, await leftParts(place, unfinished, signal), signal);
    }
    const { client, bucket: Bucket, key: Key } = place;
    const command = new CreateMultipartUploadCommand({ Bucket, Key, ChecksumAlgorithm: 'SHA256' });
    const { UploadId: id } = await client.send(command, sendOptions(signal));
    return new MultipartUpload(place, id as string, new Map(), signal);
  }

  /** Sends a part, unless the store already has it. @param number from 1 */
  async send(number: number, part: Uint8Array): Promise<void> {
    if (number > maxParts) {
      const available = maxParts * part.byteLength;
      const needed = available + part.byteLength;
      throw new CapacityError({ resource: 'partBytes', needed, available, unit: 'bytes', hint: 'raise it' });
    }
    const sha256 = createHash('sha256').update(part).digest('base64');
    const left = this.#left.get(number);
    let etag: string | undefined;
    if (left !== undefined && isSame(left, part, sha256)) {
      etag = left.etag;
      this.resumedBytes += part.byteLength;
    } else {
      const { bucket: Bucket, key: Key } = this.#place;
      const place = { Bucket, Key, UploadId: this.#id, PartNumber: number };
      const command = new UploadPartCommand({ ...place, Body: part, ChecksumSHA256: sha256 });
      etag = (await this.#place.client.send(command, sendOptions(this.#signal))).ETag;
    }
    this.#parts.push({ PartNumber: number, ETag: etag, ChecksumSHA256: sha256 });
  }

  async complete(ifAbsent: boolean): Promise<void> {
    const { client, bucket: Bucket, key: Key } = this.#place;
    const Parts = this.#parts.toSorted((a, b) => (a.PartNumber ?? 0) - (b.PartNumber ?? 0));
    const place = { Bucket, Key, UploadId: this.#id, MultipartUpload: { Parts } };
    const command = new CompleteMultipartUploadCommand({ ...place, ...(ifAbsent && { IfNoneMatch: '*' }) });
    await client.send(command, sendOptions(this.#signal));
  }

  /** Discards the parts in the store. */
  async discard(): Promise<void> {
    const { client, bucket: Bucket, key: Key } = this.#place;
    await client.send(new AbortMultipartUploadCommand({ Bucket, Key, UploadId: this.#id }));
  }
}

/** The id of the latest unfinished upload. The list has several pages, and contains uploads of all keys that begin with this one. */
async function unfinishedId(
  { client, bucket, key }: ObjectPlace,
  signal: AbortSignal | undefined,
): Promise<string | undefined> {
  let latest: MultipartUploadInfo | undefined;
  let after: Pick<ListMultipartUploadsCommandInput, 'KeyMarker' | 'UploadIdMarker'> | undefined = {};
  while (after !== undefined) {
    const command = new ListMultipartUploadsCommand({ Bucket: bucket, Prefix: key, ...after });
    const page: ListMultipartUploadsCommandOutput = await client.send(command, sendOptions(signal));
    const { Uploads = [], IsTruncated = false, NextKeyMarker, NextUploadIdMarker } = page;
    for (const upload of Uploads) {
      if (upload.Key === key && startOf(upload) >= startOf(latest)) latest = upload;
    }
    const hasNext = IsTruncated && NextKeyMarker !== undefined;
    after = hasNext ? { KeyMarker: NextKeyMarker, UploadIdMarker: NextUploadIdMarker } : undefined;
  }
  return latest?.UploadId;
}

const startOf = (upload: MultipartUploadInfo | undefined): number => Number(upload?.Initiated ?? 0);

async function leftParts(
  { client, bucket, key }: ObjectPlace,
  id: string,
  signal: AbortSignal | undefined,
): Promise<Map<number, LeftPart>> {
  const left = new Map<number, LeftPart>();
  const input = { Bucket: bucket, Key: key, UploadId: id };
  for await (const { Parts = [] } of paginateListParts({ client }, input, sendOptions(signal))) {
    for (const { PartNumber = 0, Size = 0, ETag = '', ChecksumSHA256 } of Parts) {
      left.set(PartNumber, { sizeBytes: Size, etag: ETag, sha256: ChecksumSHA256 });
    }
  }
  return left;
}

/** Compares SHA-256 if the store reports it, else MD5, which is usually the ETag of a part; parts with any other ETag are sent again. */
function isSame({ sizeBytes, etag, sha256 }: LeftPart, part: Uint8Array, expected: string): boolean {
  if (sizeBytes !== part.byteLength) return false;
  if (sha256 !== undefined) return sha256 === expected;
  return etag.replaceAll('"', '') === createHash('md5').update(part).digest('hex');
}
