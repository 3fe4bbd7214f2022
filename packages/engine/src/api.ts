/** The functions of the package on the host that runs it. */
import { host } from '#host';
import { createEngineApi, type EngineApi } from './load/engine.js';

const api: EngineApi = createEngineApi(host);

/**
 * Loads a model: checks the memory plan, reads the weights into the backend and prepares its programs.
 * @throws {FormatError} for a broken file or an architecture that is not supported
 * @throws {CapacityError} when the plan does not fit the memory limit
 * @throws {IoError} when the file cannot be read
 * @throws {ArgumentError} for an encoder, which only embeds: `loadEmbeddingModel`
 */
export const loadModel: EngineApi['loadModel'] = api.loadModel;

/**
 * Loads a model to embed texts with: an encoder, or one that generates. Throws as `loadModel`.
 * @throws {ArgumentError} when neither the caller nor the model says how the vectors of tokens become one
 */
export const loadEmbeddingModel: EngineApi['loadEmbeddingModel'] = api.loadEmbeddingModel;

/** Reads what a model file says of itself, and plans its memory, without loading the weights. Throws as `loadModel`. */
export const inspectModel: EngineApi['inspectModel'] = api.inspectModel;

/** Opens only the tokenizer and the chat template of a model. Throws as `loadModel`. */
export const openTokenizer: EngineApi['openTokenizer'] = api.openTokenizer;
