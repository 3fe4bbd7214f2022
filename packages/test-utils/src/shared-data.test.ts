import { existsSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { repoRoot, sharedDataPath } from './shared-data.js';

afterEach(() => vi.unstubAllEnvs());

describe('sharedDataPath', () => {
  it('returns an existing path below WINNOW_SHARED', () => {
    vi.stubEnv('WINNOW_SHARED', repoRoot);
    expect(sharedDataPath('packages', 'test-utils')).toBe(join(repoRoot, 'packages', 'test-utils'));
  });

  it('returns undefined for missing paths', () => {
    vi.stubEnv('WINNOW_SHARED', join(repoRoot, 'no-such-folder'));
    expect(sharedDataPath('data')).toBeUndefined();
  });
});

describe('repoRoot', () => {
  it('is the workspace folder', () => {
    expect(existsSync(join(repoRoot, 'pnpm-workspace.yaml'))).toBe(true);
  });
});

describe('the rules of every test', () => {
  it('allow a local server', async () => {
    const server = createServer((_, response) => response.end('here'));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    const response = await fetch(`http://127.0.0.1:${port}/`);
    expect(await response.text()).toBe('here');
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
});
