/** Limits for untrusted files. Each is far above what real checkpoints need. */

/**
 * Bytes of the JSON header: the limit of the format's own specification, which keeps a forged length from causing a
 * huge allocation.
 */
export const MAX_HEADER_BYTES = 100_000_000;

/**
 * Tensors in one file. Checkpoints with many experts have tens of thousands; one entry costs a few hundred bytes here.
 */
export const MAX_TENSORS = 500_000;

/**
 * Dimensions of one tensor: PyTorch and NumPy allow 64, so a longer list is not a shape but an attempt to fill memory.
 */
export const MAX_DIMS = 64;

/** Entries of `__metadata__`: writers store a handful. */
export const MAX_METADATA_ENTRIES = 65_536;

/** Nesting inside fields that are skipped because the specification does not know them. */
export const MAX_JSON_DEPTH = 64;

/** Bytes of `model.safetensors.index.json`: 90 000 tensors of a 671B model take 9 MB. */
export const MAX_INDEX_BYTES: number = 64 * 1024 * 1024;

/** Shards of one checkpoint, each of which holds a source open: the largest public ones have about 200. */
export const MAX_SHARDS = 4096;
