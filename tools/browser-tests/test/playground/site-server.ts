/** A loopback server of a built page: its files, and a scripted API beside them. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { readFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { extname } from 'node:path';

export type Handler = (request: IncomingMessage, response: ServerResponse) => void;

export interface SiteOptions {
  readonly folder: URL;
  readonly isIsolated?: boolean;
  /** Of the page, such as its policy. */
  readonly headers?: Readonly<Record<string, string>>;
  /** By `METHOD path`, or by the begin of a path that ends in `/`. */
  readonly handlers?: Readonly<Record<string, Handler>>;
}

export interface Site {
  readonly url: string;
  close(): Promise<void>;
}

const types: Readonly<Record<string, string>> = {
  '.css': 'text/css',
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.json': 'application/json',
  '.svg': 'image/svg+xml',
  '.webmanifest': 'application/manifest+json',
};

const isolation = {
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-embedder-policy': 'require-corp',
};

export async function serveSite(options: SiteOptions): Promise<Site> {
  const { folder, isIsolated = false, handlers = {} } = options;
  const headers = { ...options.headers, ...(isIsolated ? isolation : {}) };
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? '/', 'http://localhost');
    const exact = handlers[`${request.method} ${pathname}`];
    const prefix = Object.keys(handlers).find((key) => key.endsWith('/') && pathname.startsWith(key));
    const handler = exact ?? (prefix === undefined ? undefined : handlers[prefix]);
    if (handler !== undefined) handler(request, response);
    else sendFile(new URL(pathname === '/' ? 'index.html' : `.${pathname}`, folder), response, headers);
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

function sendFile(url: URL, response: ServerResponse, headers: Readonly<Record<string, string>>): void {
  try {
    const bytes = readFileSync(url);
    const type = types[extname(url.pathname)] ?? 'application/octet-stream';
    response.writeHead(200, { ...headers, 'content-type': type }).end(bytes);
  } catch {
    response.writeHead(404).end();
  }
}

export function sendJson(response: ServerResponse, value: unknown): void {
  response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(value));
}

/** The list of models of a server with one model to chat, which its first request loads. */
export const oneModel: Handler = (_request, response) =>
  sendJson(response, {
    data: [
      { id: 'vectors', context_length: 100, capabilities: ['embedding'] },
      { id: 'scripted', capabilities: [] },
    ],
  });

/** A chunk of a streamed answer. */
export function chunk(content: string, finishReason: string | null = null): string {
  return `data: ${JSON.stringify({ choices: [{ delta: { content }, finish_reason: finishReason }] })}\n\n`;
}

/** The body of a request as JSON. */
export async function bodyOf(request: IncomingMessage): Promise<unknown> {
  let text = '';
  for await (const part of request.setEncoding('utf8')) text += String(part);
  return JSON.parse(text);
}

/** Answers every chat with this text. */
export function answering(text: string): Handler {
  return (_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.end(`${chunk(text)}${chunk('', 'stop')}data: [DONE]\n\n`);
  };
}
