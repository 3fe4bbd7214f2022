export { decodeImage } from './decode.browser.js';
