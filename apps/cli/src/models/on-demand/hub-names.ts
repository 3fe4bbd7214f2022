/** Names of the hub in requests: `owner/repo`, `owner/repo:quant`, and what clients of other servers put before them. */

/** Stricter than the command line: no revision and no path, since the name comes from a client. */
const namePattern =
  /^(?:hf:|hf\.co\/|huggingface\.co\/)?([A-Za-z0-9][\w.-]{0,95}\/[A-Za-z0-9][\w.-]{0,95})(?::([\w.-]{1,64}))?$/;

/** The name without a prefix that clients put before it; undefined for anything else. */
export function hubNameOf(name: string): string | undefined {
  const [, repo, file] = namePattern.exec(name) ?? [];
  if (repo === undefined || repo.includes('..')) return undefined;
  return file === undefined ? repo : `${repo}:${file}`;
}
