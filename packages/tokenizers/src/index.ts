export type { DecodeOptions, Detokenizer, DetokenizerOptions, EncodeOptions, Tokenizer } from './tokenizer.js';
export type { GgufVocabulary } from './gguf-vocabulary.js';
export { ggufVocabulary, supportedModels, tokenType } from './gguf-vocabulary.js';
export { tokenizerFromGguf } from './from-gguf.js';
export { preTokenizerNames } from './pre-tokenizers.js';
export { tokenizerFromJson } from './json/from-json.js';
