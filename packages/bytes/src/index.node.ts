export { fileSink, type FileSinkOptions, type ResumableSink } from './file/sink.node.js';
export { fileSource } from './file/source.node.js';
export { partPath } from './file/part.node.js';
export { makeFolder } from './file/make-folder.node.js';
