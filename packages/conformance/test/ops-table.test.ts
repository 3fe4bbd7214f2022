import { createReferenceBackend } from '@winnow/ops';
import { repoRoot } from '@winnow/test-utils';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { supportMarkdown, supportTable, type SupportTable } from '../src/index.js';

/** The tables that backends commit and that their conformance tests compare with what they answer. */
function committedTables(): { name: string; table: SupportTable }[] {
  const packages = join(repoRoot, 'packages');
  return readdirSync(packages)
    .filter((folder) => folder.startsWith('backend-'))
    .map((folder) => ({ name: folder.slice('backend-'.length), path: join(packages, folder, 'test', 'support.json') }))
    .filter(({ path }) => existsSync(path))
    .map(({ name, path }) => ({ name, table: JSON.parse(readFileSync(path, 'utf8')) as SupportTable }));
}

it('docs/ops.md is current (pnpm --filter @winnow/conformance ops-table writes it)', async () => {
  const reference = { name: 'reference', table: supportTable(createReferenceBackend()) };
  const page = supportMarkdown([reference, ...committedTables()]);
  await expect(page).toMatchFileSnapshot(join(repoRoot, 'docs', 'ops.md'));
});
