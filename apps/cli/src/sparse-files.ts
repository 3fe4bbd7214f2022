/** Sidecars and half-done calibrations as files. */
import { rm, stat } from 'node:fs/promises';
import { fileSink, fileSource } from '@winnow/bytes/node';
import { openSafetensors, writeSafetensors } from '@winnow/safetensors';
import { readSidecar, sidecarContent, type CheckpointStore, type Sidecar } from '@winnow/sparse-inference';

/** What a sidecar is called. */
export const sidecarSuffix = '.sparse.safetensors';

export async function openSidecar(path: string, signal: AbortSignal): Promise<Sidecar> {
  const file = await openSafetensors(await fileSource(path), { signal });
  try {
    return await readSidecar(file, { signal });
  } finally {
    await file.close();
  }
}

/** Before the work of hours: whether a file can be there in the end. @throws {IoError} when not */
export async function checkWritable(path: string): Promise<void> {
  const sink = await fileSink(path);
  await sink.abort();
}

/** All of it or nothing. */
export async function writeSidecar(path: string, sidecar: Sidecar): Promise<number> {
  const { sizeBytes } = await writeSafetensors(await fileSink(path), sidecarContent(sidecar));
  return sizeBytes;
}

/** Beside the sidecar, until that is there. */
export interface CheckpointFile extends CheckpointStore {
  readonly path: string;
  exists(): Promise<boolean>;
  remove(): Promise<void>;
}

export function checkpointFile(sidecarPath: string): CheckpointFile {
  const path = `${sidecarPath}.partial`;
  const exists = async (): Promise<boolean> => (await stat(path).catch(() => undefined))?.isFile() === true;
  return {
    path,
    exists,
    async load() {
      return (await exists()) ? openSafetensors(await fileSource(path)) : undefined;
    },
    async save(content) {
      await writeSafetensors(await fileSink(path), content);
    },
    remove: () => rm(path, { force: true }),
  };
}
