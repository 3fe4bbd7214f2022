/** The functions of the package, bound to the current host. */
import { host } from '#host';
import { createEngineApi, type EngineApi } from './load/engine.js';

const api: EngineApi = createEngineApi(host);

/**
 * Loads a model: checks the memory plan, reads the weights into the backend and prepares its programs.
 * @throws {FormatError} for a broken file or an architecture that is not supported
 * @throws {CapacityError} when the plan exceeds the memory budget
 * @throws {IoError} when the file cannot be read
 * @throws {ArgumentError} for an encoder, which cannot generate: use `loadEmbeddingModel`
 */
export const loadModel: EngineApi['loadModel'] = api.loadModel;

/**
 * Loads an embedding model: an encoder or a decoder. Throws as `loadModel`.
 * @throws {ArgumentError} when neither the options nor the model specify the pooling
 */
export const loadEmbeddingModel: EngineApi['loadEmbeddingModel'] = api.loadEmbeddingModel;

/**
 * Loads a reranker: a cross-encoder with a classification head, or a Qwen3-Reranker. Throws as `loadModel`.
 * @throws {ArgumentError} for a model that is not a reranker
 */
export const loadReranker: EngineApi['loadReranker'] = api.loadReranker;

/** Reads the metadata of a model file and plans its memory without loading the weights. Throws as `loadModel`. */
export const inspectModel: EngineApi['inspectModel'] = api.inspectModel;

/** Opens only the tokenizer and the chat template of a model. Throws as `loadModel`. */
export const openTokenizer: EngineApi['openTokenizer'] = api.openTokenizer;

/**
 * The hash of the weights in a model's file, by which calibrations and policy files recognize their model. It covers
 * names, dtypes and shapes of all tensors and samples of their bytes. Throws as `loadModel`.
 */
export const weightsHash: EngineApi['weightsHash'] = api.weightsHash;

/**
 * Opens a folder that keeps the KV cache pages of prompts and answers between runs of the program, for the option
 * `promptCache` of `loadModel`: a prompt that begins like an earlier one is read from the folder instead of being
 * computed again. Only the owner can read the files, which hold keys, values and tokens. Several models may share a
 * store and its size limit.
 * @throws {IoError} when the folder cannot be created or read
 * @throws {ArgumentError} for a limit that is not a positive number, and on hosts without a file system
 */
export const openPromptStore: EngineApi['openPromptStore'] = api.openPromptStore;
