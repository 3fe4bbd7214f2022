export { fileSink } from './file-sink.node.js';
export { fileSource } from './file-source.node.js';
export { makeFolder } from './make-folder.node.js';
