/** A server of the Model Context Protocol: its connection, its tools, and calls of them. */
import { Client, StreamableHTTPClientTransport, type Tool, type Transport } from '@modelcontextprotocol/client';
import { IoError } from '@winnow/tensor';
import type { ToolResult, ToolServer } from './tool-server.js';

export interface ConnectOptions {
  /** Command or URL, for messages. */
  readonly address: string;
  /** A connection that has not been started, such as the result of `httpTransport`. */
  readonly transport: Transport;
  /** Version of this program, which is sent to the server. */
  readonly version: string;
  /** Maximum time to connect, and of a call without an answer or progress. */
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
  /** Called when the connection ends without having been closed. */
  readonly onEnd: (error: IoError) => void;
  /** The last line that the server wrote to its log, for errors. Default: none. */
  readonly lastOutput?: () => string;
}

/** Time to answer in the newest revision of the protocol, after which the oldest one is used. */
const probeMs = 5000;
/** Time that a server has to end a session. */
const endMs = 1000;

/** A connected server. */
export class McpServer implements ToolServer {
  readonly address: string;
  readonly #timeoutMs: number;
  readonly #client: Client;
  readonly #transport: Transport;
  readonly #lastOutput: () => string;
  #tools: readonly Tool[] = [];
  #state: 'connecting' | 'open' | 'ended' | 'closed' = 'connecting';

  private constructor({ address, transport, version, timeoutMs, onEnd, lastOutput = () => '' }: ConnectOptions) {
    this.address = address;
    this.#timeoutMs = timeoutMs;
    this.#client = new Client(
      { name: 'winnow', version },
      {
        versionNegotiation: { mode: 'auto', probe: { timeoutMs: Math.min(probeMs, timeoutMs) } },
        listChanged: { tools: { onChanged: (_error, tools) => (this.#tools = tools ?? this.#tools) } },
      },
    );
    this.#transport = transport;
    this.#lastOutput = lastOutput;
    this.#client.onclose = () => {
      if (this.#state !== 'open') return;
      this.#state = 'ended';
      onEnd(this.#error('the server has ended'));
    };
  }

  /**
   * Connects and lists the tools.
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

  /** The server's own name; until it is known, its address. */
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
  async call(name: string, values: Record<string, unknown>, signal: AbortSignal): Promise<ToolResult> {
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
      let timer: ReturnType<typeof setTimeout> | undefined;
      const ended = this.#transport.terminateSession().catch(() => {});
      await Promise.race([ended, new Promise((resolve) => void (timer = setTimeout(resolve, endMs)))]);
      clearTimeout(timer);
    }
    await this.#client.close();
  }

  #error(message: string, cause?: unknown): IoError {
    const last = this.#lastOutput();
    const log = last === '' ? '' : `; its last output: ${last}`;
    return new IoError({ source: `MCP server ${this.name}`, message: `${message}${log}` }, { cause });
  }
}

/** A connection by streamable HTTP. `headers` go with every request. */
export function httpTransport(url: URL, headers: Readonly<Record<string, string>> = {}): Transport {
  return new StreamableHTTPClientTransport(url, { requestInit: { headers } });
}

/** Messages of network failures are in their causes. */
function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? `${error.message}: ${messageOf(error.cause)}` : error.message;
}
