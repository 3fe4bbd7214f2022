/** The lines that were typed in earlier chats. */
import { appendFileSync, chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { CliIo } from './io.js';

const maxLines = 1000;
/** Only the user may read what was typed. */
const fileMode = 0o600;
const folderMode = 0o700;

/**
 * WINNOW_HISTORY (empty: no history), or else `winnow/history` in the system's folder for such files, such as
 * XDG_STATE_HOME. Undefined if there is no such folder.
 */
export function historyPath(env: CliIo['env'], platform: string = process.platform): string | undefined {
  const chosen = env['WINNOW_HISTORY'];
  if (chosen !== undefined) return chosen === '' ? undefined : chosen;
  const home = env['HOME'];
  const ownFolder = home === undefined ? undefined : join(home, '.local', 'state');
  const xdg = env['XDG_STATE_HOME'];
  const folder = platform === 'win32' ? env['LOCALAPPDATA'] : (xdg ?? '') === '' ? ownFolder : xdg;
  return folder === undefined ? undefined : join(folder, 'winnow', 'history');
}

export class HistoryFile {
  readonly path: string;
  /** Newest first. */
  readonly lines: readonly string[];
  readonly #warn: (text: string) => void;
  #hasFailed = false;

  /** Reads the lines; of a file with more than 1000, the last ones are kept. */
  constructor(path: string, warn: (text: string) => void) {
    this.path = path;
    this.#warn = warn;
    const lines = this.#try(() => this.#read()) ?? [];
    this.lines = lines.slice(-maxLines).toReversed();
    if (lines.length > maxLines) this.#try(() => this.#write(lines.slice(-maxLines)));
  }

  add(line: string): void {
    this.#try(() => appendFileSync(this.path, `${line}\n`, { mode: fileMode }));
  }

  #read(): string[] {
    mkdirSync(dirname(this.path), { recursive: true, mode: folderMode });
    appendFileSync(this.path, '', { mode: fileMode });
    chmodSync(this.path, fileMode);
    return readFileSync(this.path, 'utf8')
      .split('\n')
      .filter((line) => line !== '');
  }

  #write(lines: readonly string[]): void {
    writeFileSync(this.path, lines.map((line) => `${line}\n`).join(''), { mode: fileMode });
  }

  /** A chat works without its history: a failure is reported once. */
  #try<T>(work: () => T): T | undefined {
    if (this.#hasFailed) return undefined;
    try {
      return work();
    } catch (error) {
      this.#hasFailed = true;
      this.#warn(`lines are not kept for later chats: ${(error as Error).message}`);
      return undefined;
    }
  }
}
