export { pageUrl } from './page-url.js';
