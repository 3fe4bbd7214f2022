/** Addresses of blobs: of an object store, of a web server, or a path. */
import { createReadStream } from 'node:fs';
import { rm, stat } from 'node:fs/promises';
import { posix } from 'node:path';
import { fileSink } from '@winnow/bytes/node';
import type { BlobStore } from '@winnow/jobs';
import { IoError } from '@winnow/tensor';
import { UsageError } from '../errors/errors.js';
import { refuse } from '../flags/parse-values.js';

export const blobForms = 's3://BUCKET/PREFIX, http://HOST/PATH, https://HOST/PATH or a folder';

/** A letter and a colon begin a Windows path. */
const urlPattern = /^([a-z][a-z0-9+.-]+):\/\//i;

export const isBlobUrl = (address: string): boolean => urlPattern.test(address);

/**
 * Opens the store of an address; a folder is created when something is written.
 * @param flagName for errors
 * @throws {UsageError}
 */
export async function openBlobs(flagName: string, address: string): Promise<BlobStore> {
  const scheme = urlPattern.exec(address)?.[1]?.toLowerCase();
  const { createFolderBlobStore, createHttpBlobStore } = await import('@winnow/jobs/node');
  if (scheme === 's3') return openS3(flagName, address);
  if (scheme === 'http' || scheme === 'https') return createHttpBlobStore(address);
  if (scheme !== undefined) throw refuse(flagName, blobForms, `${scheme}://...`); // the rest may hold a password
  if (address === '') throw refuse(flagName, blobForms, address);
  return createFolderBlobStore(address);
}

async function openS3(flagName: string, address: string): Promise<BlobStore> {
  const { createS3BlobStore } = await import('@winnow/blobs-s3').catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ERR_MODULE_NOT_FOUND') throw error;
    throw new UsageError(`${flagName}: s3:// needs the package @winnow/blobs-s3; npm install -g @winnow/blobs-s3`);
  });
  return createS3BlobStore(address);
}

/** The last name of an address. */
export const nameOf = (address: string): string => (isBlobUrl(address) ? posix.basename(address) : address);

/**
 * @param url of a blob, or of a folder of blobs, which ends in `/`
 * @throws {UsageError} when it has a bucket or a host and nothing else
 */
export function checkKey(argument: string, url: string): void {
  const [scheme = ''] = url.split('://', 1);
  if (!/^[^:]+:\/\/[^/]+\//.test(url))
    throw refuse(
      argument,
      `${scheme}://${scheme === 's3' ? 'BUCKET/KEY' : 'HOST/PATH'}`,
      url.replace(/:\/\/.*@/, '://'),
    );
}

interface Place {
  readonly store: BlobStore;
  readonly key: string;
}

/** A blob, as a key of the folder in which it is. */
async function placeOf(argument: string, url: string): Promise<Place> {
  checkKey(argument, url);
  const key = posix.basename(url);
  return { store: await openBlobs(argument, url.slice(0, -key.length - 1)), key };
}

/** The content of a file or of a blob, streamed. @throws {IoError} */
export async function readFrom(
  argument: string,
  address: string,
  signal: AbortSignal,
): Promise<AsyncIterable<Uint8Array>> {
  if (isBlobUrl(address)) {
    const { store, key } = await placeOf(argument, address);
    return store.read(key, { signal });
  }
  const found = await stat(address).catch(() => undefined);
  if (found?.isFile() !== true) throw new IoError({ source: address, message: 'expected a file of requests' });
  return createReadStream(address, { signal });
}

/**
 * Writes a file or a blob, visible when it is complete. An interrupted upload continues when the content is written
 * again.
 */
export async function writeTo(argument: string, address: string, content: AsyncIterable<Uint8Array>): Promise<void> {
  if (isBlobUrl(address)) {
    const { store, key } = await placeOf(argument, address);
    await store.write(key, content, { resume: true });
    return;
  }
  const sink = await fileSink(address);
  try {
    for await (const bytes of content) await sink.write(bytes);
  } catch (error) {
    await sink.abort();
    throw error;
  }
  await sink.close();
}

/** Removes a file or a blob, if there is one. */
export async function removeAt(argument: string, address: string): Promise<void> {
  if (!isBlobUrl(address)) return rm(address, { force: true });
  const { store, key } = await placeOf(argument, address);
  await store.delete(key);
}
