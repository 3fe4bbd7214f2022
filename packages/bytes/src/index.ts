export type { ByteSource, ReadOptions } from './byte-source.js';
export type { StoredTensor, TensorStore } from './tensor-store.js';
export { blobSource } from './blob-source.js';
export { ByteCursor, type ByteCursorOptions } from './byte-cursor.js';
export { memorySink, type ByteSink, type MemorySink } from './byte-sink.js';
export { HtmlPageError, httpSource, MAX_WHOLE_BYTES, type HttpSourceOptions } from './http-source.js';
export { memorySource } from './memory-source.js';
export { readBytes } from './read-bytes.js';
export { sliceSource } from './slice-source.js';
