/** The cold tier in a folder of Node's file system. */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { makeFolder } from '@winnow/bytes/node';
import type { PageFile } from '@winnow/kv-cache';
import { openPageFile } from '@winnow/kv-cache/node';
import { deletedOnClose, type ColdFiles, type OpenColdFolder } from '../memory/cold-files.js';
import { pathOf } from './open-path.node.js';

/**
 * Files are taken out of the folder at once where the system allows it for open files, so that nothing stays behind even if
 * the process is killed; elsewhere they are deleted when they are closed.
 */
export const openColdFolder: OpenColdFolder = (location): ColdFiles => {
  const folder = pathOf(location);
  return {
    async create(name): Promise<PageFile> {
      const path = join(folder, `${name}-${process.pid}-${globalThis.crypto.randomUUID()}.pages`);
      await makeFolder(folder);
      const file = await openPageFile(path);
      const isGone = await rm(path).then(
        () => true,
        () => false,
      );
      return isGone ? file : deletedOnClose(file, () => rm(path, { force: true }));
    },
  };
};
