/** A real MCP server over streamable HTTP on loopback, with the CORS headers that a page of another origin needs. */
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, Server, type CallToolResult, type Tool } from '@modelcontextprotocol/server';

export interface TestMcpServer {
  readonly origin: string;
  readonly url: string;
  /** A line for each call, and for each that was cancelled. */
  readonly log: string[];
  close(): Promise<void>;
}

const object = (properties: Tool['inputSchema']['properties'] = {}): Tool['inputSchema'] => ({
  type: 'object',
  properties,
  required: Object.keys(properties),
  additionalProperties: false,
});

const tools: readonly Tool[] = [
  { name: 'weather', description: 'Weather of a city', inputSchema: object({ city: { enum: ['Ulm', 'Bern'] } }) },
  { name: 'note', inputSchema: object({ text: { type: 'string' } }) },
  { name: 'fail', inputSchema: object() },
  { name: 'hang', inputSchema: object() },
  { name: 'odd', inputSchema: { type: 'object', unevaluatedProperties: false } },
];

const text = (content: string): CallToolResult => ({ content: [{ type: 'text', text: content }] });

function createDemoServer(log: string[], names: readonly string[]): Server {
  const server = new Server({ name: 'demo', version: '1.0.0' }, { capabilities: { tools: {} } });
  server.setRequestHandler('tools/list', () => ({ tools: tools.filter(({ name }) => names.includes(name)) }));
  server.setRequestHandler('tools/call', async ({ params }, { mcpReq }) => {
    log.push(`${params.name} ${JSON.stringify(params.arguments)}`);
    if (params.name === 'hang') {
      await new Promise((resolve) => mcpReq.signal.addEventListener('abort', resolve));
      log.push('cancelled hang');
    }
    if (params.name === 'fail') return { ...text('no such city'), isError: true };
    return text(params.name === 'weather' ? 'It rains.' : 'Noted.');
  });
  return server;
}

function allowOrigin(response: ServerResponse): void {
  response.setHeader('access-control-allow-origin', '*');
  response.setHeader('access-control-allow-methods', 'GET, POST, DELETE');
  response.setHeader('access-control-allow-headers', '*, authorization');
  response.setHeader('access-control-expose-headers', 'mcp-session-id');
}

export interface McpServerOptions {
  /** Requests need it as a bearer token. Default: none. */
  readonly token?: string | undefined;
  /** Names of the tools. Default: all. */
  readonly names?: readonly string[];
}

export async function startMcpServer(options: McpServerOptions = {}): Promise<TestMcpServer> {
  const { token, names = tools.map(({ name }) => name) } = options;
  const log: string[] = [];
  const handle = toNodeHandler(createMcpHandler(() => createDemoServer(log, names)));
  const server = createServer((request, response) => {
    allowOrigin(response);
    const isKnown = token === undefined || request.headers.authorization === `Bearer ${token}`;
    if (request.method === 'OPTIONS') response.writeHead(204).end();
    else if (!isKnown) response.writeHead(401).end();
    else void handle(request as Parameters<typeof handle>[0], response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    origin,
    url: `${origin}/mcp`,
    log,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
