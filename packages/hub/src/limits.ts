/** Limits for untrusted files and responses. Each is far above what real repositories have. */

/**
 * Bytes of config.json, tokenizer_config.json and similar files: the longest real ones, with tens of thousands of
 * labels, have 2 MB.
 */
export const MAX_CONFIG_BYTES: number = 16 * 1024 * 1024;

/** Bytes of tokenizer.json: vocabularies of 260 000 tokens with merges have 35 MB. */
export const MAX_TOKENIZER_JSON_BYTES: number = 256 * 1024 * 1024;

/** Bytes of model.safetensors.index.json: the same limit as that of its reader. */
export const MAX_INDEX_BYTES: number = 64 * 1024 * 1024;

/** Bytes of a chat template: long ones with tool calls have 20 kB. */
export const MAX_TEMPLATE_BYTES: number = 1024 * 1024;

/** Files of one repository or folder: model repositories have tens to a few hundred. */
export const MAX_FILES = 100_000;

/** Entries of an archive of PyTorch: the state dict of a layer has five. */
export const MAX_ARCHIVE_ENTRIES = 4096;

/** Bytes of the pickle in such an archive: that of a layer has a few hundred. */
export const MAX_PICKLE_BYTES: number = 1024 * 1024;
