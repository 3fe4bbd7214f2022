export { DEFAULT_TEMPLATE } from './chat-template.js';
export { isSafeFileName } from './file-name.js';
export { blobFolder, memoryFolder, type HubFiles } from './files.js';
export { isColbert, openHubFolder, type HubModel } from './hub/model.js';
export { oneFileFolder } from './hub/one-file.js';
export { JsonObject, pageInsteadOf, parseJsonObject } from './json-object.js';
export {
  MAX_ARCHIVE_ENTRIES,
  MAX_CONFIG_BYTES,
  MAX_FILES,
  MAX_INDEX_BYTES,
  MAX_PICKLE_BYTES,
  MAX_TEMPLATE_BYTES,
  MAX_TOKENIZER_JSON_BYTES,
} from './limits.js';
export { groupGgufFiles, mmprojBeside, selectFiles, type FileSelection, type GgufGroup } from './select-files.js';
export {
  denseModules,
  hasTokenVectors,
  type DenseModules,
  type SentenceModule,
  type SentenceTransformers,
} from './sentence-transformers.js';
export { openStateDict } from './state-dict.js';
export { findWeightFiles, type WeightFiles } from './weight-files.js';
