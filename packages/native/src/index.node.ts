export { findAddon, platformName } from './find.node.js';
export { choiceOfEnvironment, openNative, type OpenNativeOptions } from './open.node.js';
export type { ProbeOptions } from './probe.node.js';
