/** How a chat reaches a server of `--mcp`: as a process of its own, or by HTTP. */
import type { Transport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { parseArgsStringToArgv } from 'string-argv';
import { httpTransport } from '@winnow/mcp/client';
import { definedFields } from '@winnow/tensor';
import { UsageError } from '../../errors/errors.js';

/** Characters of a server's log that are kept. */
const maxLogLength = 2000;

export interface ServerAddress {
  /** A command line, which is run without a shell, or the URL of a server. */
  readonly address: string;
  /** Headers of all requests to a URL. */
  readonly headers: Readonly<Record<string, string>>;
  /** Environment of a command: that of this program, as for any command of a shell, and `--mcp-env`. */
  readonly env: Readonly<Record<string, string | undefined>>;
}

export interface ServerTransport {
  readonly transport: Transport;
  /** The last line that a command wrote to its standard error. */
  readonly lastOutput?: () => string;
}

export function isHttpAddress(address: string): boolean {
  return /^https?:\/\//i.test(address);
}

/** @throws {UsageError} for an address that is neither a command nor a URL */
export function transportOf({ address, headers, env }: ServerAddress): ServerTransport {
  if (isHttpAddress(address)) {
    if (!URL.canParse(address)) throw new UsageError(`--mcp: expected a URL, got '${address}'`);
    return { transport: httpTransport(new URL(address), headers) };
  }
  const [command, ...args] = parseArgsStringToArgv(address);
  if (command === undefined || command === '') throw new UsageError('--mcp: expected a command or a URL, got nothing');
  const environment = definedFields(env) as Record<string, string>;
  const transport = new StdioClientTransport({ command, args, env: environment, stderr: 'pipe' });
  let log = '';
  transport.stderr?.on('data', (chunk: Buffer) => {
    log = (log + chunk.toString('utf8')).slice(-maxLogLength);
  });
  return { transport, lastOutput: () => log.trimEnd().split('\n').at(-1) ?? '' };
}
