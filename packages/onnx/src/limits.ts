/** Limits for untrusted files: far above every published model, far below what would exhaust memory. */

/** Nodes and initializers of a graph: the largest decoders have some 20 000. */
export const maxGraphEntries: number = 1_000_000;
/** Bytes of one node with its attributes; weights are initializers. */
export const maxNodeBytes: number = 16 * 1024 * 1024;
/** Bytes of a tensor without its data. */
export const maxTensorHeaderBytes: number = 64 * 1024;
/** Dimensions of a tensor. */
export const maxDims: number = 16;
/** Values that are encoded one by one (`int32_data`), as in small tensors. */
export const maxListedValues: number = 1 << 20;
