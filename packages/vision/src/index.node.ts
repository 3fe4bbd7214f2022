export { decodeImage } from './decode.node.js';
