/** Node: locations may be paths of the file system. */
import { tmpdir, totalmem } from 'node:os';
import { fileSink, fileSource } from '@winnow/bytes/node';
import { decodeImage } from '@winnow/vision/node';
import type { EngineHost } from '../load/engine.js';
import { openColdFolder } from './cold-folder.node.js';
import { openAdapterPath } from './open-adapter.node.js';
import { openPromptFolder } from './prompt-folder.node.js';
import { findMmproj, openPath, pathOf } from './open-path.node.js';

export const host: EngineHost = {
  memoryBytes: totalmem(),
  openPath,
  findMmproj,
  decodeImage,
  openAdapterPath,
  openFile: (path) => fileSource(pathOf(path)),
  openFolder: openColdFolder,
  temporaryFiles: () => openColdFolder(tmpdir()),
  // a session contains the conversation
  openSink: (path) => fileSink(pathOf(path), { mode: 0o600 }),
  openPromptStore: openPromptFolder,
  openSource: (path) => fileSource(pathOf(path)),
};
