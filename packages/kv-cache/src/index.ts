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
  SequenceContents,
  SequenceView,
} from './block-types.js';
export { createBlockManager } from './block-manager.js';
export { createHeavyHitters, type HeavyHitterOptions, type HeavyHitters, type Victims } from './heavy-hitters.js';
export { expiredBlocks, expiredSlots, sinkQueryPosition, type WindowOptions } from './window-policy.js';
export { kvBytesPerToken, kvCacheBytes, kvPageBytes, recurrentStateBytes, type KvSizes } from './memory.js';
export { attendPartial, type AttendOptions, type SlotReader } from './attend.js';
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
export { createStates, finishStates } from './partial-states.js';
export { createValueMean, type ValueMean } from './value-mean.js';
export { checksum64 } from './checksum.js';
export { PageError } from './page-error.js';
export { memoryPageFile, type PageFile } from './page-file.js';
export { openPageRecords, type DamagedRecord, type PageRecords, type PageRecordsOptions } from './page-records.js';
export {
  createPageStore,
  type PageMove,
  type PageStatistics,
  type PageStore,
  type PageStoreOptions,
} from './page-store.js';
export {
  createStreamedAttention,
  type StreamedAttention,
  type StreamedAttentionOptions,
} from './streamed-attention.js';
export type { JsonValue, SessionHeader, SessionOptionValue } from './session-layout.js';
export { checkSession, openSession, type SessionFile } from './session-reader.js';
export {
  bytesSection,
  writeSession,
  type SessionContents,
  type SessionSection,
  type WriteSessionOptions,
} from './session-writer.js';
export type { RecordShape } from './page-record.js';
