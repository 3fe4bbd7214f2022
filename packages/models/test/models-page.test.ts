import { join } from 'node:path';
import { repoRoot } from '@winnow/test-utils';
import { expect, test } from 'vitest';
import { modelsPage } from './models-page.js';

test('docs/models.md is current (pnpm --filter @winnow/models models-table writes it)', async () => {
  await expect(modelsPage()).toMatchFileSnapshot(join(repoRoot, 'docs', 'models.md'));
});
