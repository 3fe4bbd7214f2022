/** Session files in Node. */
import { fileSink, fileSource } from '@winnow/bytes/node';
import { pathOf } from './open-path.node.js';
import type { SessionFiles } from '../sessions/location.js';

export const sessionFiles: SessionFiles = {
  openSink: (path) => fileSink(pathOf(path)),
  openSource: (path) => fileSource(pathOf(path)),
};
