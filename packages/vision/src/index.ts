export { readImageHeader, type ImageHeader } from './header.js';
export { maxFileBytes, maxPixels, type DecodeOptions, type ImageFormat, type RgbImage } from './image.js';
export { patchesOf, type Normalization } from './patches.js';
export { createImageProcessor, type ImageProcessor, type ProcessorOptions } from './processor.js';
export type { ProcessorSettings } from './settings.js';
export type { ProcessedImage } from './tiles.js';
export { resizeImage, type ResizeFilter } from './resize.js';
