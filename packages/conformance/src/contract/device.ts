/** The contract of `Backend` about its device: true limits, and a `lost` promise that stays pending. */
import { checkStillRuns, prepareSums, refused, sums, type CreateBackend } from './fixtures.js';

export async function checkLimits(create: CreateBackend): Promise<string[]> {
  const backend = await create();
  const { maxBufferBytes, maxTotalBytes, copyAlignment } = backend.limits;
  const failures: string[] = [];
  if (!(maxBufferBytes > 0 && maxTotalBytes >= maxBufferBytes)) {
    failures.push(`buffers of ${maxBufferBytes} bytes at most, of ${maxTotalBytes} together`);
  }
  if (!Number.isSafeInteger(copyAlignment) || copyAlignment < 1) failures.push(`copyAlignment ${copyAlignment}`);
  if (Number.isFinite(maxBufferBytes)) {
    const allocate = (sizeBytes: number) => backend.allocate({ sizeBytes, usage: 'kv', label: 'largest' });
    failures.push(...(await refused('a buffer above the limit', 'capacity', () => allocate(maxTotalBytes + 1))));
    backend.free(allocate(maxBufferBytes));
  }
  await backend.dispose();
  return failures;
}

export async function checkStaysAlive(create: CreateBackend): Promise<string[]> {
  const backend = await create();
  let isLost = false;
  void backend.lost.then(() => (isLost = true));
  const executable = await prepareSums(backend, sums(2));
  const failures = await checkStillRuns(executable, 2, 'a run');
  await backend.dispose();
  await Promise.resolve();
  if (isLost) failures.push('the promise of the lost device resolved although nothing happened to it');
  return failures;
}
