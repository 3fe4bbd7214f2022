/** Browsers, and hosts without a file system: paths name files of the page's origin, if the host has them. */
import { decodeImage } from '@winnow/vision/browser';
import type { EngineHost } from '../load/engine.js';
import { openPath } from './open-path.browser.js';
import { openOpfsFolder, opfsSessionFiles } from './opfs.browser.js';

export const host: EngineHost = { ...opfsSessionFiles, openPath, openFolder: openOpfsFolder, decodeImage };
