/** Models in object stores, read by ranges. */
import type { ModelLocation } from '@winnow/engine';
import type { HubFiles } from '@winnow/hub';
import type { BlobStore } from '@winnow/jobs';
import { checkKey, openBlobs } from './blobs.js';

/**
 * A `.gguf` or `.safetensors` file, or a folder of Hugging Face for a URL that ends in `/`.
 * @param url such as `s3://bucket/key.gguf`
 * @param signal ends opening a file
 * @throws {UsageError} for a bucket without a key
 */
export async function blobModel(url: string, signal: AbortSignal): Promise<ModelLocation> {
  checkKey('MODEL', url);
  const end = url.lastIndexOf('/');
  const files = await storedFiles(await openBlobs('MODEL', url.slice(0, end)), signal);
  const file = url.slice(end + 1);
  return file === '' ? files : { files, file };
}

async function storedFiles(store: BlobStore, signal: AbortSignal): Promise<HubFiles> {
  const { blobByteSource } = await import('@winnow/jobs');
  return {
    name: store.name,
    list: async () => (await store.list('', { signal })).map(({ key }) => key),
    has: async (name) => (await store.stat(name, { signal })) !== undefined,
    open: (name) => blobByteSource(store, name, { signal }),
  };
}
