export { nativeLevels, type NativeAddon, type NativeAttachment, type NativeLevel } from './addon.js';
export { findAddon, platformName } from './find.node.js';
export {
  choiceOfEnvironment,
  openNative,
  type NativeChoice,
  type NativeKernels,
  type NativeResult,
  type OpenNativeOptions,
} from './open.node.js';
export type { ProbeOptions } from './probe.node.js';
