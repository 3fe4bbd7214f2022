/** What `--mcp-header` and `--mcp-env` give to servers. */
import { UsageError } from '../../errors/errors.js';
import { isHttpAddress } from './transport.js';

/** `URL NAME: VALUE` or `NAME: VALUE`; the name is a token of RFC 9110, section 5.6.2. */
const pattern = /^(?:(https?:\/\/\S+)\s+)?([!#$%&'*+.^_`|~\w-]+):\s*(.*)$/i;

/**
 * The headers of each URL of `--mcp`. A header without a URL belongs to the only one: with several, it would tell a
 * secret of one server to another. `${NAME}` in a value is a variable of the environment, which keeps secrets out of
 * the list of processes.
 * @throws {UsageError} for a text that is not a header, a URL that `--mcp` does not name, and a variable that is not
 *   set
 */
export function headersByAddress(
  addresses: readonly string[],
  texts: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
): ReadonlyMap<string, Readonly<Record<string, string>>> {
  const urls = addresses.filter(isHttpAddress);
  const headers = new Map<string, Record<string, string>>();
  for (const text of texts) {
    const [, url = urls[0], name, value = ''] = pattern.exec(text) ?? [];
    // the text may contain a secret: it is not repeated
    if (name === undefined) throw new UsageError("--mcp-header: expected 'NAME: VALUE' or 'URL NAME: VALUE'");
    const isAmbiguous = urls.length > 1 && !/^https?:/i.test(text);
    if (url === undefined || isAmbiguous || !urls.includes(url)) {
      const expected = urls.length === 0 ? 'a URL of --mcp' : `'URL ${name}: VALUE' with a URL of --mcp`;
      throw new UsageError(`--mcp-header: expected ${expected}, got ${urls.length} URLs and the header ${name}`);
    }
    const filled = value.replaceAll(/\$\{(\w+)\}/g, (_, variable: string) => valueOf(variable, env));
    headers.set(url, { ...headers.get(url), [name]: checkedValue(name, filled) });
  }
  return headers;
}

/**
 * Variables by name.
 * @throws {UsageError} for a text without a name
 */
export function variablesOf(texts: readonly string[]): Readonly<Record<string, string>> {
  const entries = texts.map((text) => {
    const [, name, value = ''] = /^([^=]+)=(.*)$/s.exec(text) ?? [];
    // the text may be a secret: it is not repeated
    if (name === undefined) throw new UsageError('--mcp-env: expected NAME=VALUE');
    return [name, value] as const;
  });
  return Object.fromEntries(entries);
}

function valueOf(variable: string, env: Readonly<Record<string, string | undefined>>): string {
  const value = env[variable];
  if (value !== undefined) return value;
  throw new UsageError(`--mcp-header: expected a variable of the environment, got \${${variable}}, which is not set`);
}

/** What HTTP allows in a value. */
function checkedValue(name: string, value: string): string {
  if (/^[\t\x20-\x7e\x80-\xff]*$/.test(value)) return value.trim();
  throw new UsageError(`--mcp-header: expected printable Latin-1 characters in the value of ${name}, got others`);
}
