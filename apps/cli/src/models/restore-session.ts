/** Restores the session of `--load-session`. */
import type { Model, Session } from '@winnow/engine';
import { FormatError } from '@winnow/tensor';

/** @throws {FormatError} for a damaged file, and for a session of another model or of other flags */
export async function restoreSession(model: Model, file: string, signal: AbortSignal): Promise<Session> {
  try {
    return await model.restoreSession(file, { signal });
  } catch (error) {
    throw FormatError.isInstance(error) ? readableError(error, file) : error;
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
