export { describeJobStore, type DescribeJobStoreOptions } from './testing/describe-job-store.js';
export { describeBlobStore, type DescribeBlobStoreOptions } from './testing/describe-blob-store.js';
