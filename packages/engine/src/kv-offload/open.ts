/** Opens the KV tiers of a loaded model: programs, staging memory, stores. */
import { openCold } from '../memory/cold-files.js';
import { KvOffloader } from './offloader.js';
import type { OffloadHost, OffloadPool } from './parts.js';
import type { TierPlan } from './plan.js';
import { OffloadStore } from './store.js';
import { TierStream } from './stream.js';

/** @throws {IoError} when the files of the cold tier cannot be created */
export async function openKvOffload(host: OffloadHost, pool: OffloadPool, plan: TierPlan): Promise<KvOffloader> {
  const { runBlocks, warmBytes, cold } = plan.sizes;
  const store = await OffloadStore.open({
    buffers: pool.memory.contentBuffers,
    isResident: ({ name }) => !/\.(keys|values)$/.test(name),
    blockSize: pool.manager.blockSize,
    runBlocks,
    warmBytes,
    cold: cold === undefined ? undefined : openCold(cold, host.openFolder),
    onMove: ({ from, to, sizeBytes }) => pool.report({ kind: 'moved', from, to, sizeBytes }),
  });
  try {
    const parts = { host, pool, plan, store };
    return new KvOffloader(parts, await TierStream.create(parts));
  } catch (error) {
    await store.close();
    throw error;
  }
}
