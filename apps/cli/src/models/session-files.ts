/** The session files of a command: `--load-session`, `--save-session` and `--session-key-file`. */
import type { Model, SaveOptions, Session } from '@winnow/engine';
import { FormatError, IoError } from '@winnow/tensor';
import { OutputClosedError, UsageError } from '../errors/errors.js';
import type { SessionFlags } from '../flags/generation.js';
import { readBytesOf } from '../terminal/read-text.js';

/** Shorter keys can be guessed. */
const minKeyBytes = 16;

export class SessionFiles {
  readonly #flags: SessionFlags;
  readonly #key: { readonly key?: Uint8Array };

  private constructor(flags: SessionFlags, key: Uint8Array | undefined) {
    this.#flags = flags;
    this.#key = key === undefined ? {} : { key };
  }

  /** Reads the key. @throws {UsageError} for a short key, and for one without a session file */
  static async create(flags: SessionFlags, signal: AbortSignal): Promise<SessionFiles> {
    const { sessionKeyFile, loadSession, saveSession } = flags;
    if (sessionKeyFile === undefined) return new SessionFiles(flags, undefined);
    if (loadSession === undefined && saveSession === undefined) {
      throw new UsageError('--session-key-file: requires --load-session or --save-session');
    }
    const key = await readBytesOf(sessionKeyFile, signal);
    if (key.byteLength >= minKeyBytes) return new SessionFiles(flags, key);
    const expected = `expected a file of at least ${minKeyBytes} bytes`;
    throw new UsageError(`--session-key-file: ${expected}, got ${key.byteLength} bytes in ${sessionKeyFile}`);
  }

  /**
   * The session of `--load-session`, or a new one.
   * @throws {FormatError} for a damaged file, and for a session of another model, of another key or of other flags
   */
  async open(model: Model, signal: AbortSignal): Promise<Session> {
    const file = this.#flags.loadSession;
    if (file === undefined) return model.createSession();
    try {
      return await model.restoreSession(file, { ...this.#key, signal });
    } catch (error) {
      throw FormatError.isInstance(error) ? readableError(error, file) : error;
    }
  }

  /**
   * Saves the session if `--save-session` asks for it.
   * @returns why it was not saved, for a command that still has output to write
   */
  async save(session: Session, options: Pick<SaveOptions, 'metadata'> = {}): Promise<Error | undefined> {
    const { saveSession } = this.#flags;
    if (saveSession === undefined) return undefined;
    try {
      await session.save(saveSession, { ...options, ...this.#key });
      return undefined;
    } catch (cause) {
      if (!IoError.isInstance(cause)) throw cause;
      return new IoError({ source: '--save-session', message: `nothing was saved: ${cause.message}` }, { cause });
    }
  }

  /** The error of a command that ends before it saves: a closed stdout, which is silent otherwise, is reported. */
  withoutSave(error: unknown): unknown {
    const { saveSession } = this.#flags;
    if (saveSession === undefined || !(error instanceof OutputClosedError)) return error;
    const message = `nothing was saved: stdout was closed before the text ended, so ${saveSession} was not written`;
    return new IoError({ source: '--save-session', message }, { cause: error });
  }
}

function readableError(error: FormatError, file: string): FormatError {
  const [group = '', option = ''] = error.field.split('.');
  if (group === 'modelHash') {
    const message = 'expected a session of this model, got one of another model (or with other adapters)';
    return new FormatError({ source: file, field: 'session', message }, { cause: error });
  }
  if (group !== 'options') return error;
  const difference = error.message.slice(error.message.indexOf('expected'));
  const message = `expected a session that was saved with the same cache flags; ${option}: ${difference}`;
  return new FormatError({ source: file, field: 'session', message }, { cause: error });
}
