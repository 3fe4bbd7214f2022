/** The parts that KV offload of a loaded model works with, passed on unchanged. */
import type { BlockManager } from '@winnow/kv-cache';
import type { Backend, BufferHandle, Executable, Program } from '@winnow/ops';
import type { OpenColdFolder } from '../memory/cold-files.js';
import type { KvMemory } from '../memory/kv-memory.js';
import type { ReportEvent } from '../metrics/events.js';
import type { TierPlan } from './plan.js';
import type { OffloadStore } from './store.js';

/** The device of a loaded model, and what the host provides. */
export interface OffloadHost {
  readonly backend: Backend;
  /** Memory of the programs, by buffer name. */
  readonly buffers: ReadonlyMap<string, BufferHandle>;
  /** All programs of the plan, prepared. */
  readonly executables: ReadonlyMap<Program, Executable>;
  readonly openFolder: OpenColdFolder;
  readonly now: () => number;
}

/** The pool that pages leave. */
export interface OffloadPool {
  readonly manager: BlockManager;
  readonly memory: KvMemory;
  readonly report: ReportEvent;
}

export interface OffloadParts {
  readonly host: OffloadHost;
  readonly pool: OffloadPool;
  readonly plan: TierPlan;
  readonly store: OffloadStore;
}
