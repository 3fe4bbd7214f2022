/** A loopback server for one cross-origin isolated page and the files that it requests. */
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname } from 'node:path';

export interface PageServer {
  readonly url: string;
  close(): Promise<void>;
}

export interface PageServerOptions {
  /** The page's module. */
  readonly code: string;
  /** Files on disk by their path below the server, such as `/model.gguf`. */
  readonly files: Readonly<Record<string, string>>;
}

const html =
  '<!doctype html><title>Winnow bench</title><link rel="icon" href="data:,"><script type="module" src="page.js"></script>';

const headers = {
  'cache-control': 'no-store',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-embedder-policy': 'require-corp',
};

const types: Readonly<Record<string, string>> = {
  '.js': 'text/javascript; charset=utf-8',
  '.wasm': 'application/wasm',
};

/** Starts the server on a free port. */
export async function servePage({ code, files }: PageServerOptions): Promise<PageServer> {
  async function sendFile(path: string, response: ServerResponse): Promise<void> {
    const { size } = await stat(path);
    const type = types[extname(path)] ?? 'application/octet-stream';
    response.writeHead(200, { ...headers, 'content-type': type, 'content-length': size });
    createReadStream(path)
      .on('error', () => response.destroy())
      .pipe(response);
  }

  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? '/', 'http://localhost');
    const file = Object.hasOwn(files, pathname) ? files[pathname] : undefined;
    if (pathname === '/') response.writeHead(200, { ...headers, 'content-type': 'text/html' }).end(html);
    else if (pathname === '/page.js') response.writeHead(200, { ...headers, 'content-type': types['.js'] }).end(code);
    else if (file === undefined) response.writeHead(404, headers).end();
    else sendFile(file, response).catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
