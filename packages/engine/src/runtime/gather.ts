/** Gives the readers of a step's results the time to ask for the next step, so that it can be one for all of them. */

interface Channel {
  readonly port1: { onmessage: (() => void) | null; close(): void };
  readonly port2: { postMessage(message: unknown): void };
}

/** From a result to the next request it is a dozen promises, more with wrappers around generations. */
const maxMicrotasks = 64;

/** Resolves as soon as `isComplete`, else when whoever goes on without waiting for the world has done so. */
export async function gather(isComplete: () => boolean): Promise<void> {
  for (let turn = 0; turn < maxMicrotasks; turn++) {
    if (isComplete()) return;
    await undefined;
  }
  await hostTurn();
}

/** One turn of the host's event loop, without the delay of timers. */
function hostTurn(): Promise<void> {
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
