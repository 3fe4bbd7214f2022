/**
 * Limits for untrusted files. They bound memory and time before any claimed size is trusted. In addition, every claimed
 * size must fit in the file.
 */

/** Upper limits of what `openGguf` accepts. */
export interface GgufLimits {
  readonly maxTensors: number;
  readonly maxMetadataPairs: number;
  readonly maxKeyBytes: number;
  readonly maxTensorNameBytes: number;
  readonly maxStringBytes: number;
  readonly maxArrayLength: number;
  readonly maxArrayNesting: number;
  readonly maxNestedArrays: number;
  readonly maxDims: number;
  readonly maxHeaderBytes: number;
}

export const defaultGgufLimits: GgufLimits = {
  /** The largest mixtures of experts with one tensor per expert matrix have about 50 000. */
  maxTensors: 131_072,
  /** Real files have 20 to 100; one pair costs about 200 bytes of memory. */
  maxMetadataPairs: 65_536,
  /** The format's own limit: 2^16 - 1. */
  maxKeyBytes: 65_535,
  /** llama.cpp accepts at most 63; files of other programs have longer ones. */
  maxTensorNameBytes: 1_024,
  /** The longest strings in use are whole tokenizer.json files, up to about 35 MB. */
  maxStringBytes: 64 * 1024 * 1024,
  /** The largest vocabularies have 262 144 tokens and about twice as many merges. An element costs up to 40 bytes. */
  maxArrayLength: 4_194_304,
  /** No known file nests arrays at all; the limit bounds the recursion depth. */
  maxArrayNesting: 4,
  /** Total number of nested arrays in one file: 12 bytes in the file take about 200 in memory. */
  maxNestedArrays: 65_536,
  /** GGML tensors have at most four dimensions. */
  maxDims: 4,
  /** Vocabulary, merges and an embedded tokenizer.json stay below 64 MB. */
  maxHeaderBytes: 256 * 1024 * 1024,
};
