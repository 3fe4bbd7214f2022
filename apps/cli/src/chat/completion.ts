/** Completes /commands and names of files. */
import { readdirSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { printable } from '../errors/printable.js';

/** The completions of a line, and the part of it that they replace. */
export function completeLine(
  line: string,
  commands: readonly string[],
  commandsWithFile: ReadonlySet<string>,
): [readonly string[], string] {
  const [, command = '', file] = /^\/(\S*)(?:\s+(.*))?$/s.exec(line) ?? [];
  if (!line.startsWith('/')) return [[], line];
  if (file !== undefined) return commandsWithFile.has(command) ? [filesLike(file), file] : [[], line];
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
    return []; // no such folder has no files
  }
}
