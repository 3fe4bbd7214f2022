export {
  defaultGgufAlignment,
  openGguf,
  type GgufFile,
  type GgufPart,
  type GgufTensor,
  type OpenGgufOptions,
} from './gguf-file.js';
export { defaultGgufLimits, type GgufLimits } from './limits.js';
export { GgufMetadata, type GgufMetadataEntry } from './metadata.js';
export { openGgufUrl, type OpenGgufUrlOptions } from './open-url.js';
export { ggufSplitName, openSplitGguf, parseGgufSplitName, type GgufSplitName } from './split.js';
export type { GgufArray, GgufNumberType, GgufType, GgufTypedArray, GgufTypedValue } from './value-types.js';
export { writeGguf, type GgufTensorInput, type GgufValueInput, type WriteGgufOptions } from './writer.js';
