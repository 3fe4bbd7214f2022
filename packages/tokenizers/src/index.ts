export type {
  DecodeOptions,
  Detokenizer,
  DetokenizerOptions,
  EncodeOptions,
  PairTemplate,
  Tokenizer,
} from './tokenizer/tokenizer.js';
export type { GgufVocabulary } from './vocabulary/gguf-vocabulary.js';
export { ggufVocabulary, supportedModels, tokenType } from './vocabulary/gguf-vocabulary.js';
export { tokenizerFromGguf } from './gguf/from-gguf.js';
export { preTokenizerNames } from './text/pre-tokenizers.js';
export { tokenizerFromJson } from './json/from-json.js';
