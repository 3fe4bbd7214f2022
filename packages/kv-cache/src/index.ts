export type {
  AppendedSlots,
  AttachedPage,
  BlockChanges,
  BlockCopy,
  BlockManager,
  BlockManagerOptions,
  BlockStatistics,
  BlockUsage,
  CreateSequenceOptions,
  DetachedPage,
  SequenceView,
} from './block-types.js';
export { createBlockManager } from './block-manager.js';
export { createHeavyHitters, type HeavyHitterOptions, type HeavyHitters, type Victims } from './heavy-hitters.js';
export { expiredBlocks, expiredSlots, sinkQueryPosition, type WindowOptions } from './window-policy.js';
export { kvBytesPerToken, kvCacheBytes, kvPageBytes, recurrentStateBytes, type KvSizes } from './memory.js';
export { attendPartial, createStates, finishStates, type AttendOptions, type SlotReader } from './attend.js';
export { hadamardSize, rotateRows } from './hadamard.js';
export {
  applyChanges,
  createContiguousCache,
  createKvPool,
  createPagedCache,
  type KvCache,
  type KvPool,
  type KvPoolOptions,
} from './kv-cache.js';
export { createKvStorage, type KvStorage, type KvStorageOptions } from './kv-storage.js';
export { createPageSummaries, type PageSummaries, type PageSummaryOptions } from './page-summaries.js';
export { createValueMean, type ValueMean } from './value-mean.js';
