/** The tools of all servers of a chat: their names, whether they can be used, and calls with consent. */
import type { CallRequest, Consent } from './consent.js';
import { resultText } from './result-text.js';
import type { ToolDefinition, ToolServer } from './tool-server.js';

/** A tool as it is described to the model. */
export interface OfferedTool {
  readonly name: string;
  readonly description?: string;
  /** JSON schema of the arguments, an object. */
  readonly parameters: Readonly<Record<string, unknown>>;
}

/** A complete call of a model. */
export interface ToolCall {
  readonly name: string;
  /** JSON text of an object. */
  readonly arguments: string;
}

/** Services that the calls of one answer need. */
export interface ToolHost {
  readonly signal: AbortSignal;
  /** Returns why a tool cannot be offered to the model, for example a schema that cannot be enforced; undefined if it can. */
  readonly check: (tool: OfferedTool) => Promise<string | undefined>;
  /** Asks the user. @throws the reason of the signal */
  readonly ask: (request: CallRequest) => Promise<Consent>;
  /** Reports an event. */
  readonly notice: (text: string) => void;
  /** Reports what is in progress, until the next report. */
  readonly wait: (tool: string) => void;
}

/** The tools of one answer. */
export interface OfferedTools {
  readonly tools: readonly OfferedTool[];
  /**
   * Runs a call if the user consents. Failures are also returned as results, for the model to read.
   * @throws the reason of the signal
   */
  run(call: ToolCall): Promise<string>;
}

export interface ListedTool extends OfferedTool {
  /** Why it cannot be used, as far as it is known. */
  readonly fault: string | undefined;
  /** Whether its calls need no consent anymore. */
  readonly isAllowed: boolean;
}

export interface ListedServer {
  readonly server: ToolServer;
  readonly tools: readonly ListedTool[];
}

/** A tool under the name that the model knows it by. */
interface NamedTool {
  readonly server: ToolServer;
  readonly definition: ToolDefinition;
  readonly tool: OfferedTool;
  /** Identifies the definition: consent to a tool ends when its server changes it. */
  readonly key: string;
}

/** What is known about the tools of one server, by key. */
interface Known {
  readonly allowed: Set<string>;
  /** Why tools cannot be used; undefined for those that can. */
  readonly faults: Map<string, string | undefined>;
}

export class Toolbox {
  readonly #servers = new Map<ToolServer, Known>();

  constructor(servers: readonly ToolServer[] = []) {
    for (const server of servers) this.add(server);
  }

  /** Adds the tools of another server after those of the others. */
  add(server: ToolServer): void {
    this.#servers.set(server, { allowed: new Set(), faults: new Map() });
  }

  /** Removes a server with its tools and the consent to them, and closes it. */
  async remove(server: ToolServer): Promise<void> {
    this.#servers.delete(server);
    await server.close();
  }

  /** Consents to all calls of a tool as long as its definition does not change. Returns false if no server has it. */
  allow(name: string): boolean {
    const found = this.#named().find(({ tool }) => tool.name === name);
    if (found !== undefined) this.#known(found).allowed.add(found.key);
    return found !== undefined;
  }

  /** The tools that the model can use now. Reports once for each of the others why it cannot be used. */
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

  /** All servers with their tools, also those that cannot be used. */
  list(): readonly ListedServer[] {
    const named = this.#named();
    return Array.from(this.#servers, ([server, { allowed, faults }]) => ({
      server,
      tools: named
        .filter((tool) => tool.server === server)
        .map(({ tool, key }) => ({ ...tool, fault: faults.get(key), isAllowed: allowed.has(key) })),
    }));
  }

  async close(): Promise<void> {
    await Promise.all(Array.from(this.#servers.keys(), (server) => server.close()));
  }

  #known({ server }: NamedTool): Known {
    return this.#servers.get(server) ?? { allowed: new Set(), faults: new Map() };
  }

  #named(): NamedTool[] {
    const all = Array.from(this.#servers.keys()).flatMap((server) =>
      server.tools.map((definition) => ({ server, definition })),
    );
    const names = toolNames(all.map(({ server, definition }) => [server.name, definition.name]));
    return all.map(({ server, definition }, index) => {
      const { description, inputSchema } = definition;
      const tool: OfferedTool = {
        name: names[index] as string,
        ...(description === undefined ? {} : { description }),
        parameters: inputSchema,
      };
      return { server, definition, tool, key: JSON.stringify(definition) };
    });
  }

  async #fault(named: NamedTool, { check, notice }: ToolHost): Promise<string | undefined> {
    const { key, tool } = named;
    const { faults } = this.#known(named);
    if (!faults.has(key)) {
      const fault = await check(tool);
      if (fault !== undefined) notice(`the tool ${tool.name} cannot be used: ${fault}`);
      faults.set(key, fault);
    }
    return faults.get(key);
  }

  async #run(named: NamedTool, values: Record<string, unknown>, host: ToolHost): Promise<string> {
    const { server, definition, tool } = named;
    const { signal, notice, wait } = host;
    if (!(await this.#hasConsent(named, values, host))) return 'Error: the user did not agree to this call.';
    signal.throwIfAborted();
    wait(tool.name);
    try {
      const text = resultText(await server.call(definition.name, values, signal));
      notice(`${tool.name} returned ${text.length.toLocaleString('en')} characters`);
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
    if (server.asksUser === true) return true;
    const { allowed } = this.#known(named);
    if (allowed.has(key)) {
      notice(`calls ${tool.name} ${JSON.stringify(values)}`);
      return true;
    }
    const request = { server: { name: server.name, address: server.address }, tool: tool.name, arguments: values };
    const consent = await ask(request);
    if (consent === 'always') allowed.add(key);
    return consent !== 'no';
  }
}

/** Maximum length of tool names in the APIs of OpenAI and Anthropic. */
const maxNameLength = 64;

/**
 * Names of the tools of several servers: ambiguous ones are prefixed with the name of the server. Characters that APIs do not
 * allow, such as periods and line breaks, become `-`; they could also disguise a question to the user.
 */
function toolNames(tools: readonly (readonly [server: string, name: string])[]): string[] {
  const taken = new Set<string>();
  const safe = (name: string): string => name.replaceAll(/[^\w-]/g, '-');
  const names = tools.map(([, name]) => safe(name));
  return tools.map(([server], index) => {
    const name = names[index] as string;
    const isShared = names.indexOf(name) !== names.lastIndexOf(name);
    const full = isShared ? `${safe(server)}_${name}` : name;
    let free = full.slice(0, maxNameLength);
    for (let count = 2; taken.has(free); count += 1) {
      free = `${full.slice(0, maxNameLength - `_${count}`.length)}_${count}`;
    }
    taken.add(free);
    return free;
  });
}
