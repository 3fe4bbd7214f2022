/** Where the addon may be: built from source in this package, or in the package for this platform. */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

/** `linux-x64-gnu`: operating system, processor, and C library on Linux. */
export function platformName(): string {
  const { platform, arch } = process;
  return platform === 'linux' ? `linux-${arch}-${isMusl() ? 'musl' : 'gnu'}` : `${platform}-${arch}`;
}

function isMusl(): boolean {
  const { header } = process.report.getReport() as { readonly header: { readonly glibcVersionRuntime?: string } };
  return header.glibcVersionRuntime === undefined;
}

/** Path of the addon for this platform, if there is one. */
export function findAddon(): string | undefined {
  const platform = platformName();
  const built = fileURLToPath(new URL(`../build/${platform}/winnow.node`, import.meta.url));
  if (existsSync(built)) return built;
  try {
    return createRequire(import.meta.url).resolve(`@winnow/native-${platform}/winnow.node`);
  } catch {
    return undefined;
  }
}
