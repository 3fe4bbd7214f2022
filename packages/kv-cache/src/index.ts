/// <reference lib="esnext.disposable" preserve="true" />
export type { AppendedSlots, BlockChanges, BlockCopy } from './blocks/slot-writer.js';
export {
  createBlockManager,
  type AttachedPage,
  type BlockManager,
  type BlockManagerOptions,
  type BlockStatistics,
  type BlockUsage,
  type CreateSequenceOptions,
} from './blocks/block-manager.js';
export type { DetachedPage, SequenceView } from './blocks/sequence-state.js';
export type { SequenceContents } from './blocks/restore-sequence.js';
export {
  createHeavyHitters,
  type HeavyHitterOptions,
  type HeavyHitters,
  type Victims,
} from './eviction/heavy-hitters.js';
export { expiredBlocks, expiredSlots, sinkQueryPosition, type WindowOptions } from './eviction/window-policy.js';
export { kvBytesPerToken, kvCacheBytes, kvPageBytes, recurrentStateBytes, type KvSizes } from './memory.js';
export type { AttendOptions } from './attention/programs.js';
export { createContiguousCache, createPagedCache, type KvCache } from './attention/cache.js';
export { KvPool, type KvPoolOptions } from './attention/pool.js';
export type { KvBlocks, KvShape, KvShapeOptions } from './attention/shape.js';
export { KvStorage, type KvStorageOptions } from './attention/storage.js';
export { PageSummaries, type PageSummaryOptions } from './attention/page-summaries.js';
export { Rotation, type RotationOptions } from './attention/rotation.js';
export { StreamedAttention, type StreamedAttentionOptions } from './attention/streamed-attention.js';
export { createStates, finishStates, hadamardSize } from '@winnow/ops';
export { checksum64 } from './checksum.js';
export { PageError } from './pages/error.js';
export { memoryPageFile, type PageFile } from './pages/file.js';
export { openPageFrames, type DamagedFrame, type PageFrames, type PageFramesOptions } from './pages/frames.js';
export {
  createPageStore,
  type PageMove,
  type PageStatistics,
  type PageStore,
  type PageStoreOptions,
} from './pages/store.js';
export type { JsonValue, SessionHeader, SessionOptionValue } from './sessions/layout.js';
export { checkSession, openSession, type OpenSessionOptions, type SessionFile } from './sessions/reader.js';
export {
  bytesSection,
  writeSession,
  type SessionContents,
  type SessionSection,
  type WriteSessionOptions,
} from './sessions/writer.js';
export type { PageFrameShape } from './pages/frame.js';
