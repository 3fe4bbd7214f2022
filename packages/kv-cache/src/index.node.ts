export { openPageFile, type PageFileOptions, type RawFile } from './page-file.node.js';
