/** Puts together what runs a loaded model: block manager, cache memory, scheduler. */
import { createBlockManager } from '@winnow/kv-cache';
import type { Backend, BufferHandle, Executable } from '@winnow/ops';
import { createKvMemory } from './kv-memory.js';
import { guardedListener } from './metrics.js';
import type { ModelPlan } from './model-plan.js';
import { createScheduler, type Scheduler } from './scheduler.js';
import type { KvPool } from './sequence.js';
import { createStateRows } from './state-rows.js';
import type { LoadOptions } from './types.js';

export interface RuntimeParts {
  readonly backend: Backend;
  readonly buffers: ReadonlyMap<string, BufferHandle>;
  readonly plan: ModelPlan;
  readonly decode: Executable;
  readonly batch: Executable;
  readonly decodeBatch: Executable | undefined;
  readonly options: LoadOptions;
}

export function createRuntime({ backend, buffers, plan, decode, batch, decodeBatch, options }: RuntimeParts): {
  readonly pool: KvPool;
  readonly scheduler: Scheduler;
} {
  const { numBlocks, blockSize, maxBlocksPerSequence } = plan.cache;
  const report = guardedListener(options.onEvent);
  const memory = createKvMemory(backend, plan.programs, buffers, { numBlocks, numStates: plan.numStates, report });
  const states = memory.stateBuffers.length === 0 ? undefined : createStateRows(plan.numStates, blockSize);
  const manager = createBlockManager({
    numBlocks,
    blockSize,
    maxBlocksPerSequence,
    prefixSharing: options.prefixSharing ?? true,
    onContentDropped: (contentId) => states?.dropSnapshot(contentId),
  });
  const scheduler = createScheduler(
    { manager, memory, states, report },
    {
      decode,
      batch,
      decodeBatch,
      maxChunk: plan.maxChunk,
      maxBlocksPerSequence,
      whenFull: options.whenFull ?? 'error',
    },
  );
  return { pool: { manager, memory, states, report, onFreed: () => scheduler.wake() }, scheduler };
}
