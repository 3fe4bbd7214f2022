export { convertFiles, type ConvertFilesOptions } from './convert-files.node.js';
