/** Connects to the servers of `--mcp`. Nothing else loads the protocol's library. */
import { McpServer, type ConnectOptions } from './server.js';
import { Toolbox } from './toolbox.js';

export interface ToolboxOptions {
  /** Commands and URLs of servers. */
  readonly addresses: readonly string[];
  /** Names of tools that need no question. */
  readonly allowed: readonly string[];
  readonly env: ConnectOptions['env'];
  readonly version: string;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
  readonly warn: (text: string) => void;
}

/**
 * @throws {UsageError} for an address that is neither a command nor a URL, and for an allowed tool that no server has
 * @throws {IoError} if a server cannot be started or reached; none is left running
 */
export async function connectToolbox(options: ToolboxOptions): Promise<Toolbox> {
  const { addresses, allowed, warn, ...common } = options;
  const onEnd = (error: Error): void => warn(`${error.message}; its tools are gone`);
  const attempts = await Promise.allSettled(
    addresses.map((address) => McpServer.connect({ ...common, address, onEnd })),
  );
  const toolbox = new Toolbox(attempts.flatMap((attempt) => (attempt.status === 'fulfilled' ? [attempt.value] : [])));
  try {
    for (const attempt of attempts) if (attempt.status === 'rejected') throw attempt.reason;
    toolbox.allow(allowed);
    return toolbox;
  } catch (error) {
    await toolbox.close();
    throw error;
  }
}
