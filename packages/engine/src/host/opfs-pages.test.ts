/** Pages in the origin's file system, in a page that may not start the worker which reads and writes them. */
import { IoError } from '@winnow/tensor';
import { afterEach, expect, test, vi } from 'vitest';
import { openOpfsPages } from './opfs-pages.browser.js';

afterEach(() => void vi.unstubAllGlobals());

class SilentWorker {
  onerror: ((event: { message?: string }) => void) | null = null;

  postMessage(): void {
    queueMicrotask(() => this.onerror?.({}));
  }

  terminate(): void {}
}

class ForbiddenWorker {
  constructor() {
    throw new DOMException('The operation is insecure.', 'SecurityError');
  }
}

test.each([
  ['an event without a message', SilentWorker],
  ['an exception', ForbiddenWorker],
])('a policy without worker-src, reported by %s, is an error that names the directive', async (_how, Worker) => {
  vi.stubGlobal('Worker', Worker);
  const opening = openOpfsPages('cold.pages', {});
  await expect(opening).rejects.toThrow(IoError);
  await expect(openOpfsPages('cold.pages', {})).rejects.toThrow(/cold\.pages: .*worker-src blob:/);
});
