/** Writes a folder under a temporary name and renames it, so that a killed process never leaves files of two models. */
import {
  chmod,
  copyFile,
  link,
  lstat,
  mkdir,
  readdir,
  readlink,
  realpath,
  rename,
  rm,
  symlink,
} from 'node:fs/promises';
import { dirname, join, sep } from 'node:path';
import { makeFolder, partPath } from '@winnow/bytes/node';
import { IoError } from '@winnow/tensor';

/** Files that `convertToFolder` may write: those of an earlier model must not remain among the new ones. */
const ownFiles: readonly RegExp[] = [
  /^(?:config|tokenizer|tokenizer_config|modules|1_Pooling\/config|model\.safetensors\.index)\.json$/,
  /^model(?:-\d{5}-of-\d{5})?\.safetensors$/,
];

/**
 * Runs `write` in a new folder beside `path` and then renames it to `path`. Other files of a folder at `path` are kept;
 * the files of the model in it are replaced. After a failure `path` is as it was. Two renames replace a folder that is
 * not empty: a process that is killed between them leaves no folder at `path`, and the next call brings it back.
 * @throws {IoError} when the system refuses
 */
export async function replaceFolder<T>(path: string, write: (folder: string) => Promise<T>): Promise<T> {
  const place = await realpath(path).catch(() => path); // a link to a folder stays a link
  await bringBack(place);
  await makeFolder(dirname(place));
  const aside = await partPath(place);
  try {
    await makeFolder(aside);
    const result = await write(aside);
    await onSystem(place, async () => {
      await keepOthers(place, aside);
      await swap(aside, place);
    });
    return result;
  } catch (error) {
    await rm(aside, { recursive: true, force: true }).catch(() => undefined);
    throw error;
  }
}

/** Where the old folder is kept between the two renames. */
function replacedPath(path: string): string {
  return `${path}.winnow-replaced`;
}

/** Recovers from a killed process: restores the old folder, or removes it if the new one is in place. */
async function bringBack(path: string): Promise<void> {
  const replaced = replacedPath(path);
  if (!(await isThere(replaced))) return;
  await onSystem(path, () =>
    isThere(path).then((isDone) => (isDone ? rm(replaced, { recursive: true }) : rename(replaced, path))),
  );
}

async function swap(aside: string, path: string): Promise<void> {
  try {
    await rename(aside, path); // replaces nothing or an empty folder
    return;
  } catch (error) {
    if (!(await isThere(path))) throw error;
  }
  const replaced = replacedPath(path);
  await rename(path, replaced);
  try {
    await rename(aside, path);
  } catch (error) {
    await rename(replaced, path);
    throw error;
  }
  // the new folder is complete: the next call removes what cannot be removed now
  await rm(replaced, { recursive: true, force: true }).catch(() => undefined);
}

/** Adds the other files of `from` to `to`, without copying where the file system can link. */
async function keepOthers(from: string, to: string): Promise<void> {
  if (!(await isThere(from))) return;
  await chmod(to, (await lstat(from)).mode);
  for (const entry of await readdir(from, { recursive: true, withFileTypes: true })) {
    const source = join(entry.parentPath, entry.name);
    const name = source.slice(from.length + 1);
    const target = join(to, name);
    const isOwn = ownFiles.some((pattern) => pattern.test(name.replaceAll(sep, '/')));
    if (entry.isDirectory() || isOwn || (await isThere(target))) continue;
    await mkdir(dirname(target), { recursive: true });
    if (entry.isSymbolicLink()) await symlink(await readlink(source), target);
    else await link(source, target).catch(() => copyFile(source, target));
  }
}

async function isThere(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}

async function onSystem(path: string, action: () => Promise<void>): Promise<void> {
  try {
    await action();
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new IoError({ source: path, message: `cannot be replaced: ${reason}` }, { cause });
  }
}
