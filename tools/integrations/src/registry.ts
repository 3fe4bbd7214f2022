/** A registry of npm on this machine, which has the packed packages and nothing else. */
import { listTarball } from '@winnow/gates/tarball';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Archives } from './archives.ts';

export interface Registry {
  /** Makes npm find the packages of the workspace here, and all others where it always does. */
  readonly environment: Readonly<Record<string, string>>;
  close(): Promise<void>;
}

interface PackedManifest {
  readonly name: string;
  readonly version: string;
}

/** What a registry answers about a package: its manifest, as it is in the archive, and where the archive is. */
export function describePackage(archive: Uint8Array, url: string): object {
  const text = new TextDecoder().decode(listTarball(archive).get('package.json'));
  const manifest = JSON.parse(text) as PackedManifest;
  const integrity = `sha512-${createHash('sha512').update(archive).digest('base64')}`;
  const { name, version } = manifest;
  return {
    name,
    'dist-tags': { latest: version },
    versions: { [version]: { ...manifest, dist: { integrity, tarball: `${url}/archives/${name}` } } },
  };
}

/** Starts the registry on a free port. */
export async function startRegistry(archives: Archives): Promise<Registry> {
  let url = '';
  const answer = (path: string): Uint8Array | string | undefined => {
    const name = path.replace(/^\/(archives\/)?/, '');
    const file = archives.get(name);
    if (file === undefined) return undefined;
    const archive = readFileSync(file);
    return path.startsWith('/archives/') ? archive : JSON.stringify(describePackage(archive, url));
  };
  const server = createServer((request, response) => {
    const body = answer(decodeURIComponent(request.url ?? ''));
    // the next run may have other archives at the same port
    const headers = { 'cache-control': 'no-store' };
    if (body === undefined) response.writeHead(404, headers).end('{}');
    else response.writeHead(200, { ...headers, 'content-length': Buffer.byteLength(body) }).end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    environment: { 'npm_config_@winnow:registry': `${url}/` },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
