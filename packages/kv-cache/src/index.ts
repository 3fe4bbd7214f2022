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
