/** A server of the Model Context Protocol: its connection, its tools, and calls of them. */
import { Client, StreamableHTTPClientTransport, type CallToolResult, type Tool } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { parseArgsStringToArgv } from 'string-argv';
import { definedFields, IoError } from '@winnow/tensor';
import { UsageError } from '../../errors/errors.js';

export interface ConnectOptions {
  /** A command line, which is run without a shell, or the URL of a server. */
  readonly address: string;
  /** Environment of a command: that of this program, as for any command of a shell. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Version of this program, for the server. */
  readonly version: string;
  /** Maximum time to connect, and of a call without an answer or progress. */
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
  /** The connection ended although it was not closed. */
  readonly onEnd: (error: IoError) => void;
}

/** Servers that take longer to answer in the newest revision of the protocol are asked in the oldest one. */
const probeMs = 5000;
/** Characters of a server's log that an error may quote. */
const maxLogLength = 2000;
/** Time that a server has to end a session. */
const endMs = 1000;

type ServerTransport = StdioClientTransport | StreamableHTTPClientTransport;

export class McpServer {
  readonly address: string;
  readonly #timeoutMs: number;
  readonly #client: Client;
  readonly #transport: ServerTransport;
  #tools: readonly Tool[] = [];
  #log = '';
  #state: 'connecting' | 'open' | 'ended' | 'closed' = 'connecting';

  private constructor({ address, env, version, timeoutMs, onEnd }: ConnectOptions) {
    this.address = address;
    this.#timeoutMs = timeoutMs;
    this.#client = new Client(
      { name: 'winnow', version },
      {
        versionNegotiation: { mode: 'auto', probe: { timeoutMs: Math.min(probeMs, timeoutMs) } },
        listChanged: { tools: { onChanged: (_error, tools) => (this.#tools = tools ?? this.#tools) } },
      },
    );
    this.#transport = transportOf(address, env);
    if (this.#transport instanceof StdioClientTransport) {
      this.#transport.stderr?.on('data', (chunk: Buffer) => {
        this.#log = (this.#log + chunk.toString('utf8')).slice(-maxLogLength);
      });
    }
    this.#client.onclose = () => {
      if (this.#state !== 'open') return;
      this.#state = 'ended';
      onEnd(this.#error('the server has ended'));
    };
  }

  /**
   * Connects and lists the tools.
   * @throws {UsageError} for an address that is neither a command nor a URL
   * @throws {IoError} if the server cannot be started or reached, or does not speak the protocol
   */
  static async connect(options: ConnectOptions): Promise<McpServer> {
    const server = new McpServer(options);
    const { signal, timeoutMs } = options;
    try {
      await server.#client.connect(server.#transport, { signal, timeout: timeoutMs });
      const { tools } = await server.#client.listTools(undefined, { signal, timeout: timeoutMs });
      server.#tools = tools;
      server.#state = 'open';
      return server;
    } catch (cause) {
      await server.close();
      signal.throwIfAborted();
      throw server.#error(messageOf(cause), cause);
    }
  }

  /** As the server calls itself; its address until it has done so. */
  get name(): string {
    return this.#client.getServerVersion()?.name ?? this.address;
  }

  get isOpen(): boolean {
    return this.#state === 'open';
  }

  /** The current tools: servers may add and remove some at any time. */
  get tools(): readonly Tool[] {
    return this.isOpen ? this.#tools : [];
  }

  /**
   * Calls a tool; the signal cancels the call at the server, too.
   * @throws {IoError} if the server does not answer in time, ends, or rejects the call
   * @throws the reason of the signal
   */
  async call(name: string, values: Record<string, unknown>, signal: AbortSignal): Promise<CallToolResult> {
    if (!this.isOpen) throw this.#error('the server has ended');
    try {
      return await this.#client.callTool(
        { name, arguments: values },
        { signal, timeout: this.#timeoutMs, resetTimeoutOnProgress: true, onprogress: () => {} },
      );
    } catch (cause) {
      signal.throwIfAborted();
      throw this.#error(messageOf(cause), cause);
    }
  }

  /** Ends the session, and the process of a command. */
  async close(): Promise<void> {
    const wasOpen = this.isOpen;
    this.#state = 'closed';
    if (wasOpen && this.#transport instanceof StreamableHTTPClientTransport) {
      const ended = this.#transport.terminateSession().catch(() => {});
      await Promise.race([ended, new Promise((resolve) => void setTimeout(resolve, endMs).unref())]);
    }
    await this.#client.close();
  }

  #error(message: string, cause?: unknown): IoError {
    const last = this.#log.trimEnd().split('\n').at(-1) ?? '';
    const log = last === '' ? '' : `; its last output: ${last}`;
    return new IoError({ source: `MCP server ${this.name}`, message: `${message}${log}` }, { cause });
  }
}

function transportOf(address: string, env: ConnectOptions['env']): ServerTransport {
  if (/^https?:\/\//i.test(address)) {
    if (!URL.canParse(address)) throw new UsageError(`--mcp: expected a URL, got '${address}'`);
    return new StreamableHTTPClientTransport(new URL(address));
  }
  const [command, ...args] = parseArgsStringToArgv(address);
  if (command === undefined || command === '') throw new UsageError('--mcp: expected a command or a URL, got nothing');
  return new StdioClientTransport({ command, args, env: definedFields(env) as Record<string, string>, stderr: 'pipe' });
}

/** Messages of network failures are in their causes. */
function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? `${error.message}: ${messageOf(error.cause)}` : error.message;
}
