import { exitCodes } from '../errors/errors.js';
import type { CommandContext } from './command-host.js';

/** Resolves with the first Ctrl-C or SIGTERM; the next one exits the process. */
export function stopSignal({ io }: Pick<CommandContext, 'io'>): Promise<void> {
  return new Promise((resolve) => {
    let isStopping = false;
    const stop = (): void => {
      if (isStopping) io.exitNow(exitCodes.interrupted);
      isStopping = true;
      resolve();
    };
    io.onInterrupt(stop);
    io.onTerminate(stop);
  });
}
