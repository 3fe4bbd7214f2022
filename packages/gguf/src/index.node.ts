export { openGgufFile } from './open-file.node.js';
