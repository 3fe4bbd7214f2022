/** Creates the runtime of a loaded model: KV pool, model runner, scheduler. */
import { createBlockManager } from '@winnow/kv-cache';
import type { Executable, Program } from '@winnow/ops';
import { openKvOffload } from '../kv-offload/open.js';
import type { OffloadHost } from '../kv-offload/parts.js';
import type { StepImagesParts } from '../images/step-images.js';
import type { DeviceRecovery } from '../memory/device-recovery.js';
import { KvMemory } from '../memory/kv-memory.js';
import type { EngineEvent, ReportEvent } from '../metrics/events.js';
import type { ModelPlan } from '../plan/model-plan.js';
import type { KvCacheOptions } from '../plan/options.js';
import { KvPool } from './kv-pool.js';
import type { PromptStore } from './prompt-cache/store.js';
import { ModelRunner, type StepExecutables } from './model-runner.js';
import { Scheduler } from './scheduler.js';
import { StateRows } from './state-rows.js';
import { VisitedKeys } from './visited-keys.js';

export interface RuntimeOptions {
  readonly kvCache?: KvCacheOptions;
  /** Called on evictions, block copies, preemptions, offloading and waiting as they happen. */
  readonly onEvent?: (event: EngineEvent) => void;
  /**
   * Where pages of prompts and answers are kept for later runs (`openPromptStore`). Several are asked in their order, each as
   * long as reading from it is cheaper than computing. Default: nowhere.
   */
  readonly promptCache?: PromptStore | readonly PromptStore[];
}

export interface RuntimeParts extends OffloadHost {
  readonly plan: ModelPlan;
  readonly options: { readonly kvCache: KvCacheOptions; readonly report: ReportEvent };
  readonly deviceRecovery: DeviceRecovery;
  /** Whether programs are batch-invariant, so that steps may verify drafts. */
  readonly verifiesDrafts: boolean;
  /** For models that take images. */
  readonly images: StepImagesParts | undefined;
}

export interface Runtime {
  readonly pool: KvPool;
  readonly scheduler: Scheduler;
  readonly visitedKeys: VisitedKeys | undefined;
}

/** @throws {IoError} when the files of the cold tier cannot be created */
export async function createRuntime(parts: RuntimeParts): Promise<Runtime> {
  const { backend, buffers, plan, options, now } = parts;
  const { numStates, heavyHitters } = plan;
  const { numBlocks, blockSize, maxBlocksPerSequence } = plan.cache;
  const { kvCache, report } = options;
  const memory = new KvMemory(backend, plan.programs, buffers, { numBlocks, numStates, report });
  const states = memory.stateBuffers.length === 0 ? undefined : new StateRows(numStates, blockSize);
  const manager = createBlockManager({
    numBlocks,
    blockSize,
    maxBlocksPerSequence,
    // a shared prefix would lack its attention mass
    prefixSharing: (kvCache.prefixSharing ?? true) && heavyHitters === undefined,
    onContentDropped: (contentId) => states?.dropSnapshot(contentId),
  });
  const tiers = plan.tiers && (await openKvOffload(parts, { manager, memory, report }, plan.tiers));
  const { rotaryLengths } = plan;
  const pool = new KvPool({ manager, memory, states, tiers, rotaryLengths, heavyHitters, report });
  const [decode, batch, decodeBatch] = plan.programs;
  const { layers } = plan.attention;
  const isSparse = (layer: number): boolean => layers[layer]?.decode.kind !== 'dense';
  const visitedKeys = plan.visitedLayers && new VisitedKeys(plan.visitedLayers, isSparse);
  const runner = new ModelRunner({
    executables: executablesOf(parts, { decode, batch, decodeBatch }),
    offloaded: plan.tiers?.steps && executablesOf(parts, plan.tiers.steps),
    stream: tiers?.stream,
    drafting: plan.draftProgram && (parts.executables.get(plan.draftProgram) as Executable),
    image: plan.imageProgram && (parts.executables.get(plan.imageProgram) as Executable),
    visitedKeys,
    isUniform: plan.attention.isUniform,
    verifiesDrafts: parts.verifiesDrafts,
    maxBlocksPerSequence,
    images: parts.images,
    memory,
    now,
  });
  const { whenFull = 'error' } = kvCache;
  return {
    pool,
    visitedKeys,
    scheduler: new Scheduler(pool, runner, {
      ...{ maxChunk: plan.maxChunk, whenFull, deviceRecovery: parts.deviceRecovery },
    }),
  };
}

interface StepPrograms {
  readonly decode: Program;
  readonly batch: Program;
  readonly decodeBatch?: Program | undefined;
}

function executablesOf({ executables }: RuntimeParts, { decode, batch, decodeBatch }: StepPrograms): StepExecutables {
  const prepared = (program: Program): Executable => executables.get(program) as Executable;
  return { decode: prepared(decode), batch: prepared(batch), decodeBatch: decodeBatch && prepared(decodeBatch) };
}
