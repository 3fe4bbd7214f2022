/** Completes /commands and names of files. */
import { readdirSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { printable } from '../errors/printable.js';
import { escapedSpaces, unfinishedPath } from './typed-path.js';

/** Names of commands whose argument may be a path. */
export interface FileCommands {
  /** The whole argument is the path. */
  readonly withFile: ReadonlySet<string>;
  /** Text may follow the path, whose spaces are escaped. */
  readonly withFileAndText: ReadonlySet<string>;
}

/** The completions of a line, and the part of it that they replace. */
export function completeLine(
  line: string,
  commands: readonly string[],
  { withFile, withFileAndText }: FileCommands,
): [readonly string[], string] {
  const [, command = '', file] = /^\/(\S*)(?:\s+(.*))?$/s.exec(line) ?? [];
  if (!line.startsWith('/')) return [[], line];
  if (file !== undefined) {
    if (withFile.has(command)) return [filesLike(file), file];
    const path = withFileAndText.has(command) ? unfinishedPath(file) : undefined;
    return path === undefined ? [[], line] : [filesLike(path).map(escapedSpaces), file];
  }
  return [commands.map((name) => `/${name}`).filter((name) => name.startsWith(line)), line];
}

/** Files and folders whose path begins like this one. Names with control characters are left out: the terminal shows them. */
function filesLike(path: string): string[] {
  const isFolder = path === '' || path.endsWith('/');
  const prefix = isFolder ? path : path.slice(0, path.length - basename(path).length);
  const start = isFolder ? '' : basename(path);
  try {
    return readdirSync(isFolder ? path || '.' : dirname(path), { withFileTypes: true })
      .filter(({ name }) => name.startsWith(start) && printable(name) === name)
      .filter(({ name }) => start.startsWith('.') || !name.startsWith('.'))
      .map((entry) => `${prefix}${entry.name}${entry.isDirectory() ? '/' : ''}`)
      .toSorted();
  } catch {
    return []; // a folder that does not exist has no files
  }
}
