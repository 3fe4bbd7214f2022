/** A loopback server for one page, its code, and files by range. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface PageServer {
  readonly url: string;
  /** `METHOD path range` of every request so far, except for the page and its code. */
  readonly requests: readonly string[];
  close(): Promise<void>;
}

export interface PageServerOptions {
  readonly code: string;
  /** Whether the page may share memory with its workers. */
  readonly isIsolated: boolean;
  /** Served below `/files/`. */
  readonly files?: Readonly<Record<string, Uint8Array>>;
  /** Served beside the code: what a bundler emits. */
  readonly assets?: Readonly<Record<string, Uint8Array>>;
  /** The `Content-Security-Policy` of the page. Default: none. */
  readonly contentSecurityPolicy?: string;
}

const html =
  '<!doctype html><title>Winnow</title><link rel="icon" href="data:,"><script type="module" src="page.js"></script>';

const isolation = {
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-embedder-policy': 'require-corp',
};

/** Starts the server on a free port. */
export async function servePage(options: PageServerOptions): Promise<PageServer> {
  const { code, isIsolated, files = {}, assets = {}, contentSecurityPolicy } = options;
  const requests: string[] = [];
  const policy = contentSecurityPolicy && { 'content-security-policy': contentSecurityPolicy };
  const common = { 'cache-control': 'no-store', ...(isIsolated ? isolation : {}), ...policy };

  function answer(request: IncomingMessage, response: ServerResponse): void {
    const { pathname } = new URL(request.url ?? '/', 'http://localhost');
    if (pathname === '/') {
      response.writeHead(200, { ...common, 'content-type': 'text/html; charset=utf-8' }).end(html);
      return;
    }
    if (pathname === '/page.js') {
      response.writeHead(200, { ...common, 'content-type': 'text/javascript; charset=utf-8' }).end(code);
      return;
    }
    requests.push([request.method, pathname, request.headers.range].filter(Boolean).join(' '));
    const file = pathname.startsWith('/files/') ? files[pathname.slice('/files/'.length)] : assets[pathname.slice(1)];
    if (file === undefined) {
      response.writeHead(404, common).end();
      return;
    }
    const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '');
    const first = range === null ? 0 : Number(range[1]);
    const last = range === null ? file.length - 1 : Math.min(Number(range[2]), file.length - 1);
    response.writeHead(range === null ? 200 : 206, {
      ...common,
      'content-type': 'application/octet-stream',
      'accept-ranges': 'bytes',
      etag: '"version-1"',
      'content-length': last + 1 - first,
      ...(range === null ? {} : { 'content-range': `bytes ${first}-${last}/${file.length}` }),
    });
    response.end(request.method === 'HEAD' ? undefined : file.subarray(first, last + 1));
  }

  const server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    requests,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
