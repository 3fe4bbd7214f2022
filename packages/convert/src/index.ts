export { convertToFolder, folderTypes } from './to-folder.js';
export { convertToGguf } from './to-gguf.js';
export type { ConvertOptions, ConvertProgress, ConvertResult, ConvertSource } from './conversion.js';
export { ImportanceCollector } from './importance-collector.js';
export { readImportanceMatrix, type ImportanceMatrix } from './imatrix.js';
export type { ConvertTarget } from './write-files.js';
