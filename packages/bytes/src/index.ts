export type { ByteSource } from './byte-source.js';
export type { StoredTensor, TensorStore } from './tensor-store.js';
