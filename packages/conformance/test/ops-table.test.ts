import { createReferenceBackend } from '@winnow/ops';
import { repoRoot } from '@winnow/test-utils';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { supportMarkdown, supportTable } from '../src/index.js';

it('docs/ops.md is current (pnpm --filter @winnow/conformance ops-table writes it)', async () => {
  const page = supportMarkdown([{ name: 'reference', table: supportTable(createReferenceBackend()) }]);
  await expect(page).toMatchFileSnapshot(join(repoRoot, 'docs', 'ops.md'));
});
