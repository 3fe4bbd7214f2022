import { describe, expect, it } from 'vitest';
import { retry, TransientError } from './retry.js';

const never = new AbortController().signal;

describe('retry', () => {
  it('counts failures without progress only', async () => {
    let numBytes = 0;
    const attempt = async (): Promise<string> => {
      numBytes += 1;
      if (numBytes < 6) throw new TransientError('lost', 0);
      return 'done';
    };
    expect(await retry(attempt, () => numBytes, { maxRetries: 1, delayMs: 0 }, never)).toBe('done');
  });

  it('gives up after the allowed number of consecutive failures', async () => {
    let numAttempts = 0;
    const attempt = async (): Promise<string> => {
      numAttempts += 1;
      throw new TransientError('lost', 0);
    };
    await expect(retry(attempt, () => 0, { maxRetries: 2, delayMs: 0 }, never)).rejects.toThrow(/after 3 attempts/);
    expect(numAttempts).toBe(3);
  });
});
