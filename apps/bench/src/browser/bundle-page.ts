/** Bundles the module of a page: from workspace sources when these run, else from the packages' browser builds. */
import { fileURLToPath } from 'node:url';

/** @param name name of the module next to this one (in the build: of the entry) */
export async function bundlePage(name: string): Promise<string> {
  const { build } = await import('esbuild'); // most runs need no browser
  const isSource = import.meta.url.endsWith('.ts');
  const { outputFiles } = await build({
    entryPoints: [fileURLToPath(new URL(`./${name}.${isSource ? 'ts' : 'js'}`, import.meta.url))],
    bundle: true,
    format: 'esm',
    platform: 'browser',
    target: 'es2024',
    conditions: isSource ? ['@winnow/source'] : [],
    write: false,
    logLevel: 'silent',
  });
  const [file] = outputFiles;
  if (file === undefined) throw new Error('esbuild wrote nothing');
  return file.text;
}
