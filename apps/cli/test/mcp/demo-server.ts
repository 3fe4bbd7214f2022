/**
 * An MCP server with a tool for everything that a chat has to handle: over HTTP in the process of a test, or as a process,
 * `node demo-server.ts TRANSPORT [NAME] [LOG] [TOOL]`. The transport is `stdio`, or `legacy` for one that speaks the protocol
 * of 2025 only. With the name of a tool it has no other. The log gets a line for every call, and for every cancelled one.
 * `tools/list` has two tools per page. The file named PID_FILE in the environment gets the id of the process.
 */
import { once } from 'node:events';
import { appendFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, Server, type CallToolResult, type Tool } from '@modelcontextprotocol/server';
import { serveStdio, StdioServerTransport } from '@modelcontextprotocol/server/stdio';

const object = (properties: Tool['inputSchema']['properties'] = {}): Tool['inputSchema'] => ({
  type: 'object',
  properties,
  required: Object.keys(properties),
  additionalProperties: false,
});

const late: Tool = { name: 'late', description: 'Added later', inputSchema: object() };

interface DemoOptions {
  readonly name: string;
  /** Path of a file. */
  readonly log: string | undefined;
  /** The name of its only tool. */
  readonly tool?: string | undefined;
}

function createDemoServer({ name, log, tool }: DemoOptions): Server {
  const server = new Server({ name, version: '1.0.0' }, { capabilities: { tools: { listChanged: true } } });
  const all: Tool[] = [
    { name: 'weather', description: 'Weather of a city', inputSchema: object({ city: { enum: ['Ulm', 'Bern'] } }) },
    { name: 'chart', inputSchema: object() },
    { name: 'fail', inputSchema: object() },
    { name: 'hang', inputSchema: object() },
    { name: 'crash', inputSchema: object() },
    { name: 'grow', inputSchema: object() },
    { name: 'odd', inputSchema: { type: 'object', unevaluatedProperties: false } },
    { name: 'two\nlines', inputSchema: object() },
  ];
  const tools = all.filter((each) => tool === undefined || each.name === tool);
  const note = (text: string): void => {
    if (log !== undefined) appendFileSync(log, `${text}\n`);
  };
  server.setRequestHandler('tools/list', ({ params }) => {
    const start = Number(params?.cursor ?? 0);
    const end = start + 2;
    return { tools: tools.slice(start, end), ...(end < tools.length ? { nextCursor: String(end) } : {}) };
  });
  const answers: Readonly<Record<string, () => CallToolResult | Promise<CallToolResult>>> = {
    weather: () => ({ content: [{ type: 'text', text: process.env['WEATHER'] ?? 'It rains.' }] }),
    chart: () => ({
      content: [
        { type: 'text', text: 'A chart:' },
        { type: 'image', data: 'AAECAw==', mimeType: 'image/png' },
        { type: 'resource_link', uri: 'file:///chart.csv', name: 'data' },
        { type: 'resource', resource: { uri: 'file:///notes.txt', text: 'Some notes' } },
      ],
    }),
    fail: () => ({ content: [{ type: 'text', text: 'no such city' }], isError: true }),
    crash: () => {
      process.stderr.write('starting\nout of luck\n');
      process.exit(7);
    },
    grow: async () => {
      if (!tools.includes(late)) tools.push(late);
      tools[0] = { ...(tools[0] as Tool), description: 'Weather, and more' };
      await server.sendToolListChanged();
      return { content: [{ type: 'text', text: 'grown' }] };
    },
    late: () => ({ content: [], structuredContent: { late: true } }),
  };
  server.setRequestHandler('tools/call', async ({ params }, context) => {
    note(`${params.name} ${JSON.stringify(params.arguments)}`);
    if (params.name === 'hang') {
      await new Promise((resolve) => context.mcpReq.signal.addEventListener('abort', resolve));
      note('cancelled hang');
    }
    return (await answers[params.name]?.()) ?? { content: [], isError: true };
  });
  return server;
}

export interface HttpServer {
  readonly url: string;
  close(): Promise<void>;
}

/** Serves HTTP on a free port. With a token, requests need it as a bearer token. */
export async function serveHttp(options: DemoOptions & { readonly token?: string }): Promise<HttpServer> {
  const { token } = options;
  const handle = toNodeHandler(createMcpHandler(() => createDemoServer(options)));
  const server = createServer((request, response) => {
    const isKnown = token === undefined || request.headers.authorization === `Bearer ${token}`;
    if (isKnown) void handle(request as Parameters<typeof handle>[0], response);
    else response.writeHead(401).end();
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`,
    async close() {
      const closed = once(server.close(), 'close');
      server.closeAllConnections();
      await closed;
    },
  };
}

async function serveProcess(): Promise<void> {
  const [transport = 'stdio', name = 'demo', log, tool] = process.argv.slice(2);
  if (process.env['PID_FILE'] !== undefined) writeFileSync(process.env['PID_FILE'], String(process.pid));
  if (transport === 'stdio') serveStdio(() => createDemoServer({ name, log, tool }));
  else await createDemoServer({ name, log, tool }).connect(new StdioServerTransport());
}

if (import.meta.main) await serveProcess();
