/** The MCP servers of the page: connected when an answer needs them, by streamable HTTP. */
import { signal, type Signal } from '@preact/signals';
import type { Toolbox, ToolServer } from '@winnow/mcp';
import { errorText } from '../../backend/contract.js';
import type { McpAddress } from '../settings.js';

export interface ServerState {
  readonly state: 'connecting' | 'open' | 'failed';
  /** As the server calls itself. */
  readonly name: string;
  /** Why it failed. */
  readonly problem: string;
}

export interface Wanted extends McpAddress {
  /** Sent as a bearer token; empty: none. */
  readonly token: string;
}

const timeoutMs = 60_000;
/** Of this package; the build knows it. */
const version = String(import.meta.env['VERSION']);

/** What is open, and how it was asked for. */
interface Connection {
  readonly server: ToolServer;
  readonly token: string;
}

export class Connections {
  /** By URL. */
  readonly states: Signal<ReadonlyMap<string, ServerState>> = signal(new Map());
  readonly #toolbox: Toolbox;
  readonly #open = new Map<string, Connection>();
  #last: Promise<void> = Promise.resolve();

  constructor(toolbox: Toolbox) {
    this.#toolbox = toolbox;
  }

  /**
   * Connects to those that are not, and ends the connections to all others.
   * @throws {Error} that names the server when one cannot be reached
   */
  use(wanted: readonly Wanted[], abort: AbortSignal): Promise<void> {
    // one after the other: an answer and the list of servers may want the same server
    const done = this.#last.then(() => this.#use(wanted, abort));
    this.#last = done.catch(() => {});
    return done;
  }

  async #use(wanted: readonly Wanted[], abort: AbortSignal): Promise<void> {
    const kept = new Map(wanted.map((one) => [one.url, one.token]));
    for (const [url, { server, token }] of this.#open) {
      if (!server.isOpen || kept.get(url) !== token) await this.#close(url, server);
    }
    const attempts = await Promise.allSettled(wanted.map((one) => this.#connect(one, abort)));
    abort.throwIfAborted();
    for (const attempt of attempts) if (attempt.status === 'rejected') throw attempt.reason;
  }

  async #connect({ url, token }: Wanted, abort: AbortSignal): Promise<void> {
    if (this.#open.has(url)) return;
    this.#show(url, { state: 'connecting', name: url, problem: '' });
    try {
      const server = await connect({ url, token }, abort, (error) => this.#fail(url, error));
      this.#open.set(url, { server, token });
      this.#toolbox.add(server);
      this.#show(url, { state: 'open', name: server.name, problem: '' });
    } catch (error) {
      if (abort.aborted) this.#forget(url);
      else this.#fail(url, error);
      throw error;
    }
  }

  async #close(url: string, server: ToolServer): Promise<void> {
    this.#open.delete(url);
    await this.#toolbox.remove(server);
    this.#forget(url);
  }

  #forget(url: string): void {
    const states = new Map(this.states.value);
    states.delete(url);
    this.states.value = states;
  }

  #fail(url: string, error: unknown): void {
    this.#show(url, { state: 'failed', name: url, problem: errorText(error) });
  }

  #show(url: string, state: ServerState): void {
    this.states.value = new Map(this.states.value).set(url, state);
  }
}

type McpClient = typeof import('@winnow/mcp/client');

/** The protocol's library is loaded when the first server is used. */
async function loadClient(): Promise<McpClient> {
  // the policy of the page forbids what its schemas would otherwise be compiled to
  (globalThis as { __zod_globalConfig?: object }).__zod_globalConfig = { jitless: true };
  return import('@winnow/mcp/client');
}

async function connect(
  { url, token }: Pick<Wanted, 'url' | 'token'>,
  abort: AbortSignal,
  onEnd: (error: Error) => void,
): Promise<ToolServer> {
  if (!URL.canParse(url)) throw new Error(`expected the URL of an MCP server, got "${url}"`);
  const address = new URL(url);
  const { McpServer, httpTransport } = await loadClient();
  const transport = httpTransport(address, token === '' ? {} : { authorization: `Bearer ${token}` });
  let isForbidden = false;
  const onViolation = ({ blockedURI }: SecurityPolicyViolationEvent): void => {
    isForbidden ||= blockedURI.startsWith(address.origin);
  };
  document.addEventListener('securitypolicyviolation', onViolation);
  try {
    return await McpServer.connect({ address: url, transport, version, timeoutMs, signal: abort, onEnd });
  } catch (error) {
    abort.throwIfAborted();
    // a violation is reported by a task of its own
    await new Promise((resolve) => setTimeout(resolve));
    if (!isForbidden) throw error;
    const hint = `winnow serve --page-origin ${address.origin} allows it`;
    throw new Error(`MCP server ${url}: the policy of this page does not allow its origin; ${hint}`);
  } finally {
    document.removeEventListener('securitypolicyviolation', onViolation);
  }
}
