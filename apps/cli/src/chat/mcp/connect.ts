/** Connects to the servers of `--mcp`. Nothing else loads the protocol's library. */
import { Toolbox } from '@winnow/mcp';
import { McpServer, type ConnectOptions } from '@winnow/mcp/client';
import { UsageError } from '../../errors/errors.js';
import { headersByAddress, variablesOf } from './server-settings.js';
import { transportOf, type ServerAddress } from './transport.js';

export interface ToolboxOptions extends Pick<ConnectOptions, 'version' | 'timeoutMs' | 'signal'> {
  /** Commands and URLs of servers. */
  readonly addresses: readonly string[];
  /** Headers of requests to URLs, from `--mcp-header`. */
  readonly headers: readonly string[];
  /** Names of tools that are called without asking. */
  readonly allowed: readonly string[];
  readonly env: ServerAddress['env'];
  /** Additional environment variables of commands, from `--mcp-env`. */
  readonly variables: readonly string[];
  readonly warn: (text: string) => void;
}

/**
 * @throws {UsageError} for an address that is neither a command nor a URL, a header that belongs to no server, and an
 *   allowed tool that no server has
 * @throws {IoError} if a server cannot be started or reached; none is left running
 */
export async function connectToolbox(options: ToolboxOptions): Promise<Toolbox> {
  const { addresses, allowed, warn, env, variables, headers: texts, ...common } = options;
  const onEnd = (error: Error): void => warn(`${error.message}; its tools are gone`);
  const headers = headersByAddress(addresses, texts, env);
  const commandEnv = { ...env, ...variablesOf(variables) };
  const connect = async (address: string): Promise<McpServer> => {
    const at = { address, headers: headers.get(address) ?? {}, env: commandEnv };
    return McpServer.connect({ ...common, ...transportOf(at), address, onEnd });
  };
  const attempts = await Promise.allSettled(addresses.map(connect));
  const toolbox = new Toolbox(attempts.flatMap((attempt) => (attempt.status === 'fulfilled' ? [attempt.value] : [])));
  try {
    for (const attempt of attempts) if (attempt.status === 'rejected') throw attempt.reason;
    for (const name of allowed) allow(toolbox, name);
    return toolbox;
  } catch (error) {
    await toolbox.close();
    throw error;
  }
}

function allow(toolbox: Toolbox, name: string): void {
  if (toolbox.allow(name)) return;
  const known = toolbox.list().flatMap(({ tools }) => tools.map((tool) => tool.name));
  const expected = known.length === 0 ? 'a tool of a server' : known.join(', ');
  throw new UsageError(`--mcp-allow: expected ${expected}, got '${name}'`);
}
