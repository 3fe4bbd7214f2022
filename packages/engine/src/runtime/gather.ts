/** Gives the readers of a step's results time to request the next step, so that their requests form one batch. */

interface Channel {
  readonly port1: { onmessage: (() => void) | null; close(): void };
  readonly port2: { postMessage(message: unknown): void };
}

/** A result is a dozen promises away from the next request, more with wrappers around generations. */
const maxMicrotasks = 64;

/** Resolves when `isComplete` returns true, at the latest after a turn of the event loop. */
export async function gather(isComplete: () => boolean): Promise<void> {
  for (let turn = 0; turn < maxMicrotasks; turn++) {
    if (isComplete()) return;
    await undefined;
  }
  await hostTurn();
}

/** Yields to the host's event loop, without the delay of timers. */
export function hostTurn(): Promise<void> {
  const { MessageChannel } = globalThis as unknown as { MessageChannel: new () => Channel };
  const { port1, port2 } = new MessageChannel();
  return new Promise((resolve) => {
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(0);
  });
}
