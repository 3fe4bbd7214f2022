/** Files of sidecars and calibration checkpoints. */
import { rm, stat } from 'node:fs/promises';
import { fileSink, fileSource } from '@winnow/bytes/node';
import { openSafetensors, writeSafetensors } from '@winnow/safetensors';
import { readSidecar, sidecarContent, type CheckpointStore, type Sidecar } from '@winnow/sparse-inference';

/** File name suffix of sidecars. */
export const sidecarSuffix = '.sparse.safetensors';

export async function openSidecar(path: string, signal: AbortSignal): Promise<Sidecar> {
  const file = await openSafetensors(await fileSource(path), { signal });
  try {
    return await readSidecar(file, { signal });
  } finally {
    await file.close();
  }
}

/** Checks before hours of work that the output file can be written. @throws {IoError} when it cannot */
export async function checkWritable(path: string): Promise<void> {
  const sink = await fileSink(path);
  await sink.abort();
}

/** Writes the file atomically. */
export async function writeSidecar(path: string, sidecar: Sidecar): Promise<number> {
  const { sizeBytes } = await writeSafetensors(await fileSink(path), sidecarContent(sidecar));
  return sizeBytes;
}

/** The checkpoint next to the sidecar, until the sidecar is written. */
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
