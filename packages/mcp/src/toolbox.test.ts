import { describe, expect, test } from 'vitest';
import type { CallRequest, Consent } from './consent.js';
import { Toolbox, type ToolHost } from './toolbox.js';
import type { ToolDefinition, ToolResult, ToolServer } from './tool-server.js';

/** Tools that are functions. */
class LocalServer implements ToolServer {
  readonly address = 'here';
  readonly isOpen = true;
  readonly calls: string[] = [];
  isClosed = false;
  readonly name: string;
  tools: ToolDefinition[];
  readonly asksUser?: boolean;

  constructor(name: string, tools: readonly string[], asksUser?: boolean) {
    this.name = name;
    this.tools = tools.map((tool) => ({ name: tool, inputSchema: { type: 'object' } }));
    if (asksUser !== undefined) this.asksUser = asksUser;
  }

  call(name: string, values: Record<string, unknown>): Promise<ToolResult> {
    this.calls.push(`${name} ${JSON.stringify(values)}`);
    return Promise.resolve({ content: [{ type: 'text', text: `${this.name} did ${name}` }] });
  }

  close(): Promise<void> {
    this.isClosed = true;
    return Promise.resolve();
  }
}

/** A host whose user gives these answers. */
function userOf(...answers: readonly Consent[]) {
  const left = [...answers];
  const asked: CallRequest[] = [];
  const notices: string[] = [];
  const host: ToolHost = {
    signal: new AbortController().signal,
    check: async () => undefined,
    ask: async (request) => {
      asked.push(request);
      return left.shift() as Consent;
    },
    notice: (text) => void notices.push(text),
    wait: () => {},
  };
  return { host, asked, notices };
}

describe('consent', () => {
  test('is asked for before each call; a call without it is not made', async () => {
    const server = new LocalServer('demo', ['add']);
    const { host, asked } = userOf('no', 'yes');
    const { tools, run } = await new Toolbox([server]).offer(host);
    expect(tools).toEqual([{ name: 'add', parameters: { type: 'object' } }]);
    expect(await run({ name: 'add', arguments: '{"a":1}' })).toBe('Error: the user did not agree to this call.');
    expect(server.calls).toEqual([]);
    expect(await run({ name: 'add', arguments: '{"a":2}' })).toBe('demo did add');
    expect(server.calls).toEqual(['add {"a":2}']);
    expect(asked[0]).toEqual({ server: { name: 'demo', address: 'here' }, tool: 'add', arguments: { a: 1 } });
  });

  test('for all calls of a tool ends when its server changes the tool, and when the server is removed', async () => {
    const server = new LocalServer('demo', ['add']);
    const toolbox = new Toolbox([server]);
    const { host, asked } = userOf('always', 'always', 'no');
    const call = async (): Promise<string> => (await toolbox.offer(host)).run({ name: 'add', arguments: '{}' });
    await call();
    await call();
    expect(asked).toHaveLength(1);
    expect(toolbox.list()[0]?.tools[0]).toMatchObject({ name: 'add', isAllowed: true });
    server.tools = [{ name: 'add', description: 'adds more', inputSchema: { type: 'object' } }];
    await call();
    expect(asked).toHaveLength(2);
    await toolbox.remove(server);
    expect(server.isClosed).toBe(true);
    toolbox.add(server);
    await call();
    expect([asked.length, server.calls.length]).toEqual([3, 3]);
  });

  test('to a tool of one server does not apply to a tool of the same name of another server', async () => {
    const [first, second] = [new LocalServer('a b', ['add']), new LocalServer('a b', ['add'])];
    const toolbox = new Toolbox([first, second]);
    const { host, asked } = userOf('no');
    expect(toolbox.allow('a-b_add')).toBe(true);
    expect(toolbox.allow('add')).toBe(false);
    const { run } = await toolbox.offer(host);
    await run({ name: 'a-b_add', arguments: '{}' });
    await run({ name: 'a-b_add_2', arguments: '{}' });
    expect([asked.length, first.calls.length, second.calls.length]).toEqual([1, 1, 0]);
  });

  test('is not asked for when a call only asks the user', async () => {
    const { host, asked } = userOf();
    const { run } = await new Toolbox([new LocalServer('you', ['guess'], true)]).offer(host);
    expect(await run({ name: 'guess', arguments: '{}' })).toBe('you did guess');
    expect(asked).toEqual([]);
  });
});

test('names are valid in APIs and unique', async () => {
  const long = 'x'.repeat(80);
  const { host } = userOf();
  const { tools } = await new Toolbox([new LocalServer('demo', ['a.b/c\nd', long, `${long}y`])]).offer(host);
  const names = tools.map(({ name }) => name);
  expect(names).toEqual(['a-b-c-d', 'x'.repeat(64), `${'x'.repeat(62)}_2`]);
});

test('a tool that cannot be offered to the model is omitted, reported once, and cannot be called', async () => {
  const toolbox = new Toolbox([new LocalServer('demo', ['odd', 'even'])]);
  const { host, notices } = userOf();
  const choosy: ToolHost = { ...host, check: async ({ name }) => (name === 'odd' ? 'too odd' : undefined) };
  await toolbox.offer(choosy);
  const { tools, run } = await toolbox.offer(choosy);
  expect(tools.map(({ name }) => name)).toEqual(['even']);
  expect(await run({ name: 'odd', arguments: '{}' })).toBe('Error: there is no tool odd.');
  expect(notices).toEqual(['the tool odd cannot be used: too odd']);
  expect(toolbox.list()[0]?.tools[0]?.fault).toBe('too odd');
});
