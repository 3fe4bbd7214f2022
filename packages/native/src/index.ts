export {
  nativeLevels,
  type NativeAddon,
  type NativeAttachment,
  type NativeChoice,
  type NativeKernels,
  type NativeLevel,
  type NativeResult,
} from './addon.js';
