/**
 * An MCP server as a process, with a tool for everything that a chat has to handle: `node demo-server.ts TRANSPORT [NAME]
 * [LOG]`. The transport is `stdio`, `legacy` for one that speaks the protocol of 2025 only, or `http`, which prints its
 * URL. The log gets a line for every call, and for every cancelled one. `tools/list` has two tools per page. The file named
 * PID_FILE in the environment gets the id of the process. With TOKEN in it, requests need it as a bearer token.
 */
import { appendFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, Server, type CallToolResult, type Tool } from '@modelcontextprotocol/server';
import { serveStdio, StdioServerTransport } from '@modelcontextprotocol/server/stdio';

const [transport = 'stdio', name = 'demo', log] = process.argv.slice(2);

const object = (properties: Tool['inputSchema']['properties'] = {}): Tool['inputSchema'] => ({
  type: 'object',
  properties,
  required: Object.keys(properties),
  additionalProperties: false,
});

const late: Tool = { name: 'late', description: 'Added later', inputSchema: object() };

function createDemoServer(): Server {
  const server = new Server({ name, version: '1.0.0' }, { capabilities: { tools: { listChanged: true } } });
  const tools: Tool[] = [
    { name: 'weather', description: 'Weather of a city', inputSchema: object({ city: { enum: ['Ulm', 'Bern'] } }) },
    { name: 'chart', inputSchema: object() },
    { name: 'fail', inputSchema: object() },
    { name: 'hang', inputSchema: object() },
    { name: 'crash', inputSchema: object() },
    { name: 'grow', inputSchema: object() },
    { name: 'odd', inputSchema: { type: 'object', unevaluatedProperties: false } },
    { name: 'two\nlines', inputSchema: object() },
  ];
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

if (process.env['PID_FILE'] !== undefined) writeFileSync(process.env['PID_FILE'], String(process.pid));
if (transport === 'stdio') {
  serveStdio(createDemoServer);
} else if (transport === 'legacy') {
  await createDemoServer().connect(new StdioServerTransport());
} else {
  const handle = toNodeHandler(createMcpHandler(createDemoServer));
  const expected = process.env['TOKEN'];
  const server = createServer((request, response) => {
    const isKnown = expected === undefined || request.headers.authorization === `Bearer ${expected}`;
    if (isKnown) void handle(request as Parameters<typeof handle>[0], response);
    else response.writeHead(401).end();
  }).listen(0, '127.0.0.1', () => {
    process.stdout.write(`http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp\n`);
  });
}
