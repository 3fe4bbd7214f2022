/** A loopback HTTP server with range requests, whose responses a test can replace one by one. */
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface TestServer {
  readonly url: string;
  /** `METHOD path range` of every request so far. */
  readonly requests: string[];
  /** Body bytes sent so far by regular responses. */
  readonly sentBytes: number;
  /** Responses to the next requests, instead of the regular ones. */
  readonly next: RequestListener[];
  close(): Promise<void>;
}

/** Serves `files` by path. */
export async function serveBytes(files: Record<string, Uint8Array>): Promise<TestServer> {
  const requests: string[] = [];
  const next: RequestListener[] = [];
  let sentBytes = 0;

  function answer(request: IncomingMessage, response: ServerResponse): void {
    requests.push([request.method, request.url, request.headers.range].filter(Boolean).join(' '));
    const special = next.shift();
    if (special !== undefined) {
      special(request, response);
      return;
    }
    const path = new URL(request.url ?? '/', 'http://localhost').pathname;
    const file = files[path];
    if (file === undefined) {
      response.writeHead(404).end('not found');
      return;
    }
    const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '');
    const first = range === null ? 0 : Number(range[1]);
    const last = range === null ? file.byteLength - 1 : Math.min(Number(range[2]), file.byteLength - 1);
    if (first > last) {
      response.writeHead(416, { 'content-range': `bytes */${file.byteLength}` }).end();
      return;
    }
    const body = request.method === 'HEAD' ? undefined : file.subarray(first, last + 1);
    sentBytes += body?.byteLength ?? 0;
    response.writeHead(range === null ? 200 : 206, {
      etag: '"version-1"',
      'accept-ranges': 'bytes',
      'content-length': last + 1 - first,
      ...(range === null ? {} : { 'content-range': `bytes ${first}-${last}/${file.byteLength}` }),
    });
    response.end(body);
  }

  const server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    next,
    get sentBytes() {
      return sentBytes;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
