/** A process that runs the jobs of a store until none is left: STORE FOLDER. Its handler logs what it has done. */
import { appendFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { runWorker } from '../src/index.js';
import { openSqliteJobStore } from '../src/index.node.js';

const [path = '', log = ''] = process.argv.slice(2);
const store = await openSqliteJobStore(path);
process.send?.('ready');
await runWorker(store, {
  name: `process-${process.pid}`,
  concurrency: 4,
  leaseMs: 400,
  pollMs: 20,
  async handler({ customId, payload }) {
    await sleep(5);
    if (customId === 'poison') process.kill(process.pid, 'SIGKILL');
    appendFileSync(log, `${customId}\n`);
    return payload.toUpperCase();
  },
  async isDone() {
    const { waiting, running } = await store.counts('batch');
    return waiting + running === 0;
  },
});
await store.close();
