export { openSqliteJobStore, type SqliteJobStoreOptions } from './sqlite/sqlite-job-store.node.js';
export { createFolderBlobStore } from './blobs/folder-blobs.node.js';
export { createHttpBlobStore, type HttpBlobStoreOptions } from './blobs/http-blobs.node.js';
export { Checksum, counted } from './blobs/checksum.node.js';
export { readStream, type BlobAnswer, type BlobRequest } from './blobs/read-stream.node.js';
export { callOptionNames, readOptionNames, writeOptionNames } from './blobs/blob-store.js';
