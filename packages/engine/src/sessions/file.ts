/** Shared by saving and restoring sessions: types, and the rows of cache buffers as sections of a file. */
import type { JsonValue } from '@winnow/kv-cache';
import type { LoadedModel } from '../generation/loaded-model.js';
import type { GenerationState } from '../generation/state.js';
import type { SessionKey } from '../runtime/prompt-cache/prompt-cache.js';
import type { SessionFiles } from './location.js';

/** A loaded model whose sessions can be saved. */
export interface SessionModel extends LoadedModel {
  /** What saved sessions must match. */
  readonly sessionKey: SessionKey;
  readonly files: SessionFiles;
}

/** The parts of a session besides its sequence. */
export interface SessionParts {
  readonly state: GenerationState | undefined;
  /** Metadata of the caller. */
  readonly metadata: JsonValue;
}

export interface SessionSize {
  readonly numTokens: number;
  readonly sizeBytes: number;
}

/** The section of attention masses. */
export const massesName = 'keyMasses';

/** Splits `length` bytes from `byteOffset` on at the ends of rows. */
export async function eachPart(
  rowBytes: number,
  byteOffset: number,
  length: number,
  visit: (row: number, at: number, begin: number, end: number) => Promise<void>,
): Promise<void> {
  for (let begin = 0; begin < length;) {
    const row = Math.floor((byteOffset + begin) / rowBytes);
    const at = byteOffset + begin - row * rowBytes;
    const end = Math.min(length, begin + rowBytes - at);
    await visit(row, at, begin, end);
    begin = end;
  }
}
