import type { IncomingMessage } from 'node:http';

export interface WholeBody {
  readonly bytes: readonly Uint8Array[];
  /** Whether the response has more, which was not read yet. */
  readonly hasMore: boolean;
}

/**
 * Reads a response up to a size.
 * @throws the error of the connection when it ends before the response does
 */
export async function readWhole(response: IncomingMessage, maxBytes: number): Promise<WholeBody> {
  const bytes: Uint8Array[] = [];
  let sizeBytes = 0;
  return new Promise((resolve, reject) => {
    const onData = (chunk: Uint8Array): void => {
      bytes.push(chunk);
      sizeBytes += chunk.byteLength;
      if (sizeBytes > maxBytes) finish(true);
    };
    const finish = (hasMore: boolean): void => {
      response.pause();
      response.off('data', onData);
      response.off('end', onEnd);
      if (!hasMore) response.off('error', reject);
      resolve({ bytes, hasMore });
    };
    const onEnd = (): void => finish(false);
    response.on('data', onData);
    response.once('end', onEnd);
    response.once('error', reject);
  });
}
