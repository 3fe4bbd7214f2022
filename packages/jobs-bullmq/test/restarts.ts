/** A call that waits while its server is killed and started again. */
import type { JobStore } from '@winnow/jobs';
import { expect } from 'vitest';

interface Server {
  kill(): Promise<void>;
  start(): Promise<void>;
  stop(): Promise<void>;
}

/** The store still has what it answered before; ends the server. */
export async function checkRestart(server: Server, open: () => Promise<JobStore>): Promise<void> {
  let store: JobStore | undefined;
  try {
    store = await open();
    await store.enqueue(
      'batch',
      ['a', 'b'].map((customId, index) => ({ customId, index, payload: customId })),
    );
    const [job] = await store.claim({ worker: 'worker', leaseMs: 60_000 });
    await server.kill();
    const completing = store.complete(job as never, 'done'); // sent when the server is back
    await server.start();
    expect(await completing).toBe('held');
    expect((await store.list('batch')).map(({ state, result }) => [state, result])).toEqual([
      ['completed', 'done'],
      ['waiting', undefined],
    ]);
  } finally {
    await store?.close();
    await server.stop();
  }
}
