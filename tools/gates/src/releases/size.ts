/** The bundle size of each entry point: bundled with all dependencies, minified, compressed. */
import { existsSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';
import { entriesOf, readJson, type Manifest } from '../workspace/workspace.ts';

/** Bytes by package name and export path. */
export type SizeBudgets = Readonly<Record<string, Readonly<Record<string, number>>>>;

export async function bundledSizeBytes(folder: string, file: string, external: readonly string[]): Promise<number> {
  const isForNode = file.includes('.node.') || isApplication(folder);
  const result = await build({
    entryPoints: [join(folder, file)],
    absWorkingDir: folder,
    bundle: true,
    minify: true,
    write: false,
    format: 'esm',
    platform: isForNode ? 'node' : 'neutral',
    // libraries that run in browsers, too, bundle what their dependencies have for browsers
    ...(isForNode ? {} : { conditions: ['browser'] }),
    mainFields: ['module', 'main'],
    target: 'es2024',
    external: ['node:*', ...external],
    logLevel: 'silent',
  });
  const output = result.outputFiles[0];
  if (!output) throw new Error(`${file}: the bundler wrote nothing`);
  return gzipSync(output.contents, { level: 9 }).length;
}

/** Applications run in Node alone, libraries also in browsers. */
function isApplication(folder: string): boolean {
  return basename(dirname(folder)) === 'apps';
}

export interface SizeReport {
  readonly problems: string[];
  readonly lines: string[];
}

/** Every export with code must have a budget and stay within it. */
export async function checkSize(folder: string, budgets: SizeBudgets): Promise<SizeReport> {
  const manifest = readJson<Manifest>(join(folder, 'package.json'));
  const budget = budgets[manifest.name] ?? {};
  const report: SizeReport = { problems: [], lines: [] };
  for (const { label, default: file } of entriesOf(manifest)) {
    if (!existsSync(join(folder, file))) {
      report.problems.push(`exports["${label}"]: ${file} is missing, build first`);
      continue;
    }
    const sizeBytes = await bundledSizeBytes(folder, file, Object.keys(manifest.peerDependencies ?? {}));
    const limit = budget[label];
    if (limit === undefined) {
      report.problems.push(
        `size-budgets.json has no budget for ${manifest.name} "${label}" (it has ${sizeBytes} bytes)`,
      );
    } else if (sizeBytes > limit) {
      report.problems.push(
        `"${label}" has ${sizeBytes} bytes bundled and compressed, more than its budget of ${limit}`,
      );
    } else {
      report.lines.push(`"${label}" ${sizeBytes} of ${limit} bytes`);
    }
  }
  return report;
}
