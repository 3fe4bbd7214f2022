/** Finds the addon: built from source in this package, or in the package for this platform. */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** `linux-x64-gnu`: operating system, processor, and C library on Linux. */
export function platformName(): string {
  const { platform, arch } = process;
  return platform === 'linux' ? `linux-${arch}-${isMusl() ? 'musl' : 'gnu'}` : `${platform}-${arch}`;
}

/** Known after the first report, which takes longer than all else here. */
let isMuslHere: boolean | undefined;

function isMusl(): boolean {
  if (isMuslHere === undefined) {
    const { header } = process.report.getReport() as { readonly header: { readonly glibcVersionRuntime?: string } };
    isMuslHere = header.glibcVersionRuntime === undefined;
  }
  return isMuslHere;
}

/** This module's file, or a substitute in CommonJS bundles, which have no `import.meta.url`. */
function ownFile(): string {
  const { url } = import.meta as { readonly url?: string };
  return url === undefined ? join(process.cwd(), 'bundle.cjs') : fileURLToPath(url);
}

/** Path of the addon for this platform, if there is one. */
export function findAddon(): string | undefined {
  const platform = platformName();
  const from = ownFile();
  const built = join(dirname(dirname(from)), 'build', platform, 'winnow.node');
  if (existsSync(built)) return built;
  try {
    return createRequire(from).resolve(`@winnow/native-${platform}/winnow.node`);
  } catch {
    return undefined;
  }
}
