/** Puts together what runs a loaded model: block manager, cache memory, scheduler. */
import { createBlockManager } from '@winnow/kv-cache';
import type { Backend, BufferHandle, Executable, Program } from '@winnow/ops';
import { createKvMemory } from '../memory/kv-memory.js';
import { guardedListener, type EngineEvent } from '../metrics/events.js';
import type { OpenColdFolder } from '../memory/cold-files.js';
import { openKvTiers } from '../kv-offload/open.js';
import type { KvTiers } from '../kv-offload/offloader.js';
import type { ModelPlan } from '../plan/model-plan.js';
import { createScheduler, type Scheduler } from './scheduler.js';
import type { KvPool } from './sequence.js';
import { createStateRows } from './state-rows.js';
import type { WhenFull } from './preemption.js';

export interface RuntimeOptions {
  /**
   * What happens to a session that finds the KV cache full: `error` throws a `CapacityError`; `wait` waits until other sessions
   * end or free their blocks. Default `error`.
   */
  readonly whenFull?: WhenFull;
  /** Whether sessions reuse cached blocks of an equal prefix. Default true. */
  readonly prefixSharing?: boolean;
  /** Called on evictions, block copies, preemptions, offloading and waiting as they happen. */
  readonly onEvent?: (event: EngineEvent) => void;
}

export interface RuntimeParts {
  readonly backend: Backend;
  readonly buffers: ReadonlyMap<string, BufferHandle>;
  readonly plan: ModelPlan;
  /** All programs of the plan, prepared. */
  readonly executables: ReadonlyMap<Program, Executable>;
  readonly options: RuntimeOptions;
  readonly openFolder: OpenColdFolder;
  readonly now: () => number;
}

/** @throws {IoError} when the files of the cold tier cannot be made */
export async function createRuntime({
  backend,
  buffers,
  plan,
  executables,
  options,
  openFolder,
  now,
}: RuntimeParts): Promise<{
  readonly pool: KvPool;
  readonly scheduler: Scheduler;
}> {
  const { numBlocks, blockSize, maxBlocksPerSequence } = plan.cache;
  const report = guardedListener(options.onEvent);
  let tiers: KvTiers | undefined;
  const memory = createKvMemory(backend, plan.programs, buffers, {
    numBlocks,
    numStates: plan.numStates,
    report,
    onPagesDropped: (pageIds) => tiers?.drop(pageIds),
  });
  const states = memory.stateBuffers.length === 0 ? undefined : createStateRows(plan.numStates, blockSize);
  const manager = createBlockManager({
    numBlocks,
    blockSize,
    maxBlocksPerSequence,
    // a prefix of another sequence would come without what that one has looked at
    prefixSharing: (options.prefixSharing ?? true) && plan.heavyHitters === undefined,
    onContentDropped: (contentId) => states?.dropSnapshot(contentId),
  });
  if (plan.tiers !== undefined) {
    const common = { backend, buffers, executables, manager, memory, openFolder, report, now };
    tiers = await openKvTiers({ ...common, plan: plan.tiers });
  }
  const prepared = (program: Program): Executable => executables.get(program) as Executable;
  const [decode, batch, decodeBatch] = plan.programs;
  const tiered = plan.tiers?.steps;
  const scheduler = createScheduler(
    { manager, memory, states, tiers, report },
    {
      decode: prepared(decode),
      batch: prepared(batch),
      isUniform: plan.attention.isUniform,
      decodeBatch: decodeBatch && prepared(decodeBatch),
      tiered: tiered && {
        decode: prepared(tiered.decode),
        batch: prepared(tiered.batch),
        decodeBatch: tiered.decodeBatch && prepared(tiered.decodeBatch),
      },
      maxChunk: plan.maxChunk,
      now,
      maxBlocksPerSequence,
      whenFull: options.whenFull ?? 'error',
    },
  );
  const { heavyHitters } = plan;
  const onFreed = (): void => scheduler.wake();
  return { pool: { manager, memory, states, tiers, heavyHitters, report, onFreed }, scheduler };
}
