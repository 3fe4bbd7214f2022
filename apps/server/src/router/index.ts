export { createRouter, type WinnowRouter } from './create-router.js';
export type { RouterOptions, UpstreamEvent, UpstreamState } from './options.js';
