/** Streams a generation and accumulates its output, so that an abort loses nothing. */
import type { Generation, GenerationResult } from '@winnow/engine';
import { OutputClosedError } from '../errors/errors.js';

export interface Streamed {
  readonly text: string;
  readonly tokens: readonly number[];
  /** Undefined when the generation was aborted. */
  readonly result: GenerationResult | undefined;
  /** The error after the first token, usually the reason of the signal. */
  readonly error: unknown;
}

/**
 * @throws errors before the first token, such as a prompt that is too long
 * @throws {OutputClosedError} from `write`
 */
export async function streamGeneration(
  generation: Generation,
  write: (piece: string) => Promise<void>,
): Promise<Streamed> {
  const pieces: string[] = [];
  const tokens: number[] = [];
  try {
    for await (const { tokenId, text } of generation) {
      tokens.push(tokenId);
      pieces.push(text);
      await write(text);
    }
    const result = await generation.result();
    return { text: pieces.join(''), tokens, result, error: undefined };
  } catch (error) {
    if (tokens.length === 0 || error instanceof OutputClosedError) throw error;
    return { text: pieces.join(''), tokens, result: undefined, error };
  }
}
