export { createS3BlobStore, type S3BlobStoreOptions, type S3Credentials } from './s3-blob-store.node.js';
