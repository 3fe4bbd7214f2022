/** Puts the tiers of a loaded model together: programs, staging memory, stores. */
import type { BlockManager } from '@winnow/kv-cache';
import { slotPositionsName } from '@winnow/models';
import type { Backend, BufferHandle, Executable, Program } from '@winnow/ops';
import type { KvMemory } from '../memory/kv-memory.js';
import { openCold, type OpenColdFolder } from '../memory/cold-files.js';
import type { TierPlan } from './plan.js';
import { KvOffloader } from './offloader.js';
import { TierStore } from './store.js';
import { TierStream } from './stream.js';
import type { ReportEvent } from '../metrics/events.js';

export interface OpenTiersOptions {
  readonly plan: TierPlan;
  readonly backend: Backend;
  readonly buffers: ReadonlyMap<string, BufferHandle>;
  /** The programs of the plan, prepared. */
  readonly executables: ReadonlyMap<Program, Executable>;
  readonly manager: BlockManager;
  readonly memory: KvMemory;
  readonly openFolder: OpenColdFolder;
  readonly report: ReportEvent;
  readonly now: () => number;
}

/** @throws {IoError} when the files of the cold tier cannot be made */
export async function openKvOffload(options: OpenTiersOptions): Promise<KvOffloader> {
  const { plan, backend, buffers, executables, manager, memory, openFolder, report, now } = options;
  const { blockSize } = manager;
  const stored = memory.blockBuffers.filter(({ name }) => name !== slotPositionsName);
  const store = await TierStore.open({
    buffers: stored,
    isResident: ({ name }) => !/\.(keys|values)$/.test(name),
    blockSize,
    runBlocks: plan.runBlocks,
    warmBytes: plan.warmBytes,
    cold: plan.cold === undefined ? undefined : openCold(plan.cold, openFolder),
    onMove: ({ from, to, sizeBytes }) => report({ kind: 'moved', from, to, sizeBytes }),
  });
  try {
    const stream = await TierStream.create({
      backend,
      plan,
      blockSize,
      blockBuffers: memory.blockBuffers,
      buffers,
      executables,
      store,
      now,
    });
    return new KvOffloader({ manager, memory, plan, store, stream, report });
  } catch (error) {
    await store.close();
    throw error;
  }
}
