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
