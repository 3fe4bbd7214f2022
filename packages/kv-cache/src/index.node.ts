export { openPageFile, type PageFileOptions, type RawFile } from './pages/file.node.js';
