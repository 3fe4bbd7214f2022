/** The tools of all servers of a chat: their names, which of them can be used, and calls with consent. */
import type { Tool } from '@modelcontextprotocol/client';
import type { ChatTool, ToolCallPart } from '@winnow/engine';
import { UsageError } from '../../errors/errors.js';
import { formatInteger, formatTable } from '../../terminal/format.js';
import type { CallRequest, Consent } from './consent.js';
import { resultText } from './result-text.js';
import type { McpServer } from './server.js';

/** What the calls of one reply need. */
export interface ToolHost {
  readonly signal: AbortSignal;
  /** Why the model cannot be offered a tool, such as a schema that cannot be enforced; undefined if it can. */
  readonly check: (tool: ChatTool) => Promise<string | undefined>;
  /** Asks the user; undefined where there is nobody to ask. @throws the reason of the signal */
  readonly ask: ((request: CallRequest) => Promise<Consent>) | undefined;
  /** Says what happened. */
  readonly notice: (text: string) => void;
  /** Says what is going on until something else is written. */
  readonly wait: (label: string) => void;
}

/** A tool under the name that the model knows it by. */
interface NamedTool {
  readonly server: McpServer;
  readonly definition: Tool;
  readonly tool: ChatTool;
  /** Identifies server and definition: consent to a tool ends when its server changes the definition. */
  readonly key: string;
}

/** The tools of one answer. */
export interface OfferedTools {
  readonly tools: readonly ChatTool[];
  /**
   * Runs a call if there is consent. Failures are results, too, which the model reads.
   * @throws the reason of the signal
   */
  run(call: Pick<ToolCallPart, 'name' | 'arguments'>): Promise<string>;
}

export class Toolbox {
  readonly #servers: readonly McpServer[];
  readonly #allowed = new Set<string>();
  /** Why tools cannot be used, by key; undefined for those that can. */
  readonly #faults = new Map<string, string | undefined>();

  constructor(servers: readonly McpServer[]) {
    this.#servers = servers;
  }

  /** @throws {UsageError} for a name that no tool has */
  allow(names: readonly string[]): void {
    const known = this.#named();
    for (const name of names) {
      const found = known.find(({ tool }) => tool.name === name);
      if (found === undefined) {
        const expected = known.length === 0 ? 'a tool of a server' : known.map(({ tool }) => tool.name).join(', ');
        throw new UsageError(`--mcp-allow: expected ${expected}, got '${name}'`);
      }
      this.#allowed.add(found.key);
    }
  }

  /** The tools that the model can use now. Says once of each of the others why it cannot. */
  async offer(host: ToolHost): Promise<OfferedTools> {
    const usable: NamedTool[] = [];
    for (const named of this.#named()) {
      if ((await this.#fault(named, host)) === undefined) usable.push(named);
    }
    const run: OfferedTools['run'] = (call) => {
      const named = usable.find(({ tool }) => tool.name === call.name);
      if (named === undefined) return Promise.resolve(`Error: there is no tool ${call.name}.`);
      return this.#run(named, JSON.parse(call.arguments) as Record<string, unknown>, host);
    };
    return { tools: usable.map(({ tool }) => tool), run };
  }

  /** Servers, and below each a table of its tools. */
  describe(): string {
    const named = this.#named();
    const remark = ({ key, tool }: NamedTool): string => {
      const fault = this.#faults.get(key);
      if (fault !== undefined) return `not usable: ${fault}`;
      const [summary = ''] = (tool.description ?? '').split('\n');
      return this.#allowed.has(key) ? `(always allowed) ${summary}` : summary;
    };
    const sections = this.#servers.map((server) => {
      const rows = named.filter((tool) => tool.server === server).map((tool) => [`  ${tool.tool.name}`, remark(tool)]);
      return `${server.name} (${server.address})${server.isOpen ? '' : ': ended'}\n${formatTable(rows)}`;
    });
    return sections.join('');
  }

  async close(): Promise<void> {
    await Promise.all(this.#servers.map((server) => server.close()));
  }

  #named(): NamedTool[] {
    const all = this.#servers.flatMap((server) => server.tools.map((definition) => ({ server, definition })));
    const names = toolNames(all.map(({ server, definition }) => [server.name, definition.name]));
    return all.map(({ server, definition }, index) => {
      const { description, inputSchema } = definition;
      const tool: ChatTool = {
        name: names[index] as string,
        ...(description === undefined ? {} : { description }),
        parameters: inputSchema as NonNullable<ChatTool['parameters']>,
      };
      const key = JSON.stringify([this.#servers.indexOf(server), definition]);
      return { server, definition, tool, key };
    });
  }

  async #fault({ key, tool }: NamedTool, { check, notice }: ToolHost): Promise<string | undefined> {
    if (!this.#faults.has(key)) {
      const fault = await check(tool);
      if (fault !== undefined) notice(`the tool ${tool.name} cannot be used: ${fault}`);
      this.#faults.set(key, fault);
    }
    return this.#faults.get(key);
  }

  async #run(named: NamedTool, values: Record<string, unknown>, host: ToolHost): Promise<string> {
    const { server, definition, tool } = named;
    const { signal, notice, wait } = host;
    if (!(await this.#hasConsent(named, values, host))) return 'Error: the user did not agree to this call.';
    signal.throwIfAborted();
    wait(tool.name);
    try {
      const text = resultText(await server.call(definition.name, values, signal));
      notice(`${tool.name} returned ${formatInteger(text.length)} characters`);
      return text;
    } catch (error) {
      signal.throwIfAborted();
      const message = error instanceof Error ? error.message : String(error);
      notice(`${tool.name} failed: ${message}`);
      // the log of a server is for the user
      return `Error: ${error instanceof Error && error.cause instanceof Error ? error.cause.message : message}`;
    }
  }

  async #hasConsent(named: NamedTool, values: Record<string, unknown>, { ask, notice }: ToolHost): Promise<boolean> {
    const { server, tool, key } = named;
    if (this.#allowed.has(key)) {
      notice(`calls ${tool.name} ${JSON.stringify(values)}`);
      return true;
    }
    if (ask === undefined) {
      notice(`did not call ${tool.name}: nobody can be asked without a terminal; --mcp-allow ${tool.name} allows it`);
      return false;
    }
    const request = { server: { name: server.name, address: server.address }, tool: tool.name, arguments: values };
    const consent = await ask(request);
    if (consent === 'always') this.#allowed.add(key);
    return consent !== 'no';
  }
}

/**
 * Names of tools of several servers: a name that more than one has begins with that of the server. Characters that the
 * protocol does not recommend, such as line ends, become `-`: they could make a question look like another one.
 */
function toolNames(tools: readonly (readonly [server: string, name: string])[]): string[] {
  const taken = new Set<string>();
  const names = tools.map(([, name]) => name.replaceAll(/[^\w./-]/g, '-'));
  return tools.map(([server], index) => {
    const name = names[index] as string;
    const isShared = names.indexOf(name) !== names.lastIndexOf(name);
    const full = isShared ? `${server.replaceAll(/[^\w-]/g, '-')}.${name}` : name;
    let free = full;
    for (let count = 2; taken.has(free); count += 1) free = `${full}.${count}`;
    taken.add(free);
    return free;
  });
}
