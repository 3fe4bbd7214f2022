/** Ctrl-C for simple commands: the first one aborts the command, the second exits the process. */
import { exitCodes, InterruptedError } from '../errors/errors.js';
import type { CliIo } from './io.js';

/**
 * Runs `work` with a signal that Ctrl-C aborts, until `work` calls `release` to handle Ctrl-C itself.
 * @throws {InterruptedError} when it was aborted
 */
export async function abortable<T>(
  io: CliIo,
  work: (signal: AbortSignal, release: () => void) => Promise<T>,
): Promise<T> {
  const controller = new AbortController();
  const unsubscribe = io.onInterrupt(() => {
    if (controller.signal.aborted) io.exitNow(exitCodes.interrupted);
    else controller.abort(new InterruptedError());
  });
  try {
    return await work(controller.signal, unsubscribe);
  } catch (error) {
    throw controller.signal.aborted && !(error instanceof InterruptedError) ? new InterruptedError() : error;
  } finally {
    unsubscribe();
  }
}
