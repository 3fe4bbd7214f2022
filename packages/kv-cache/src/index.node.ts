export { openPageFile, type PageFileOptions, type RawFile } from './pages/page-file.node.js';
