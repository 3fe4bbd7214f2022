/** `--filter tensor`, `--filter=@winnow/tensor`: which packages a task is for. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { workspaceFolders } from './install.mjs';
import { fail } from './log.mjs';

/**
 * Splits arguments into selected package folders (undefined for all), turbo's filters and the allowed flags.
 * Fails with `usage` for anything else.
 */
export function parseSelection(rest, allowedFlags, usage) {
  const byName = new Map();
  for (const folder of workspaceFolders().slice(1)) {
    byName.set(JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')).name, folder);
  }
  const names = [];
  const flags = [];
  for (let index = 0; index < rest.length; index++) {
    const argument = rest[index];
    if (argument === '--filter' && rest[index + 1] !== undefined) names.push(rest[++index]);
    else if (argument.startsWith('--filter=')) names.push(argument.slice('--filter='.length));
    else if (allowedFlags.includes(argument)) flags.push(argument);
    else fail(`unknown argument "${argument}"; ${usage}`, 2);
  }
  if (names.length === 0) return { selected: undefined, names, filters: [], flags };
  const full = names.map((name) => (name.startsWith('@') ? name : `@winnow/${name}`));
  for (const name of full) if (!byName.has(name)) fail(`no package "${name}" in the workspace`, 2);
  const selected = new Set(full.map((name) => byName.get(name)));
  return { selected, names: full, filters: full.map((name) => `--filter=${name}`), flags };
}
