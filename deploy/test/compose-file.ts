/** The compose file as `docker compose` reads it: variables of its environment, merged maps, commands as words. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { repoRoot } from '@winnow/test-utils';
import { parseArgsStringToArgv } from 'string-argv';
import { parse } from 'yaml';

export interface Service {
  readonly name: string;
  readonly image: string;
  readonly command: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  readonly dependsOn: readonly string[];
  readonly replicas: number;
  readonly isReadOnly: boolean;
}

interface ServiceFields {
  readonly image: string;
  readonly command: string | readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly depends_on?: Readonly<Record<string, object>>;
  readonly deploy?: { readonly replicas?: number };
  readonly read_only?: boolean;
}

export const composePath: string = join(repoRoot, 'deploy', 'compose.yaml');

/** `$$`, `${NAME}`, `${NAME:-value when it is unset}`, `${NAME:?message when it is unset}`. @throws {Error} */
function interpolated(text: string, variables: Readonly<Record<string, string>>): string {
  return text.replaceAll(
    /\$\$|\$\{(\w+)(?::([-?])([^}]*))?\}/g,
    (whole, name: string, operator?: string, rest = '') => {
      if (whole === '$$') return '$';
      const value = variables[name] ?? '';
      if (value !== '') return value;
      if (operator !== '-') throw new Error(`${name}: ${rest === '' ? 'unset' : rest}`);
      return rest;
    },
  );
}

export function composeServices(variables: Readonly<Record<string, string>>): Map<string, Service> {
  const text = interpolated(readFileSync(composePath, 'utf8'), variables);
  const { services } = parse(text, { merge: true }) as { services: Readonly<Record<string, ServiceFields>> };
  const entries = Object.entries(services).map(([name, fields]): [string, Service] => [
    name,
    {
      name,
      image: fields.image,
      command: typeof fields.command === 'string' ? parseArgsStringToArgv(fields.command) : fields.command,
      environment: fields.environment ?? {},
      dependsOn: Object.keys(fields.depends_on ?? {}),
      replicas: fields.deploy?.replicas ?? 1,
      isReadOnly: fields.read_only ?? false,
    },
  ]);
  return new Map(entries);
}
