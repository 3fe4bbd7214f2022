/** Files and batches of `winnow serve`, in one folder. */
import { join } from 'node:path';
import { makeFolder } from '@winnow/bytes/node';
import type { ServerOptions } from '@winnow/server';

interface OpenBatches {
  readonly options: Pick<ServerOptions, 'batches'>;
  close(): Promise<void>;
}

/** One server has the folder, which is created if missing. */
export async function openBatches({ batchDir }: { readonly batchDir?: string }): Promise<OpenBatches | undefined> {
  if (batchDir === undefined) return undefined;
  const { createFolderBlobStore, openSqliteJobStore } = await import('@winnow/jobs/node');
  await makeFolder(batchDir);
  const jobs = await openSqliteJobStore(join(batchDir, 'jobs.db'));
  const blobs = createFolderBlobStore(join(batchDir, 'blobs'));
  return { options: { batches: { jobs, blobs } }, close: () => jobs.close() };
}
