/** The module of a page in one file: sources of the workspace when these run, else what the packages give to browsers. */
import { fileURLToPath } from 'node:url';

/** @param name of the module beside this one (in the build: of the entry) */
export async function bundlePage(name: string): Promise<string> {
  const { build } = await import('esbuild'); // most runs need none
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
