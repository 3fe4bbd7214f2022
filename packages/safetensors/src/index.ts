export { openSafetensors, type OpenSafetensorsOptions, type SafetensorsFile } from './safetensors-file.js';
export {
  openShardedSafetensors,
  type OpenShardedSafetensorsOptions,
  type ShardedSafetensors,
  type UnindexedTensor,
} from './sharded.js';
export type { UnsupportedTensor } from './stored-slice.js';
export { writeSafetensors, type TensorToWrite, type WriteSafetensorsOptions } from './writer.js';
export {
  MAX_DIMS,
  MAX_HEADER_BYTES,
  MAX_INDEX_BYTES,
  MAX_JSON_DEPTH,
  MAX_METADATA_ENTRIES,
  MAX_SHARDS,
  MAX_TENSORS,
} from './limits.js';
