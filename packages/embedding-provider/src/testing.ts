export { describeEmbeddingProvider, type DescribeEmbeddingProviderOptions } from './describe-embedding-provider.js';
export { describeVectorStore, type DescribeVectorStoreOptions, type OpenVectorStore } from './describe-vector-store.js';
