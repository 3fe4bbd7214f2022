/** Forbidden text: paths of a machine and hosts of package registries. */
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { isFixture, listFiles } from '../workspace/workspace.ts';

/** Split, so that this file does not report itself. */
const forbidden: readonly { readonly what: string; readonly pattern: RegExp }[] = [
  { what: 'path of a machine', pattern: new RegExp(`(?<![\\w.~-])/(${['work', 'tmp', 'root'].join('|')})/[\\w.@-]`) },
  { what: 'home folder', pattern: new RegExp(`(?<![\\w.])/(${['home', 'Users'].join('|')})/[a-z][\\w-]*/`) },
  { what: 'home folder', pattern: /[A-Z]:\\\\?Users\\/ },
  { what: 'registry host', pattern: /\b(npmjs|yarnpkg)\.(org|com)\b/ },
  { what: 'registry host', pattern: /\b(registry|npm\.pkg)\.[a-z0-9-]+\.(org|com|net|dev|io)\b/ },
];

const textExtensions =
  /\.([cm]?[jt]s|[jt]sx|jsonc?|webmanifest|md|ya?ml|sh|py|txt|out|csv|html|css|svg|wgsl|jinja|cfg|c|cc|cpp|h|toml)$/;
const textNames = /(^|\/)(run|LICENSE|Dockerfile|\.[a-z]+rc|\.gitignore)$/;
const maxScannedBytes = 4_000_000;

/** Scans the files below `root`, without fixtures, which are data, and API snapshots, whose declarations the sources contain. */
export function checkText(root: string): string[] {
  const problems: string[] = [];
  const isText = (path: string): boolean => textExtensions.test(path) || textNames.test(path);
  const accept = (path: string): boolean => isText(path) && !isFixture(path) && !path.endsWith('/api.txt');
  for (const file of listFiles(root, accept)) {
    const path = join(root, file);
    if (statSync(path).size > maxScannedBytes) continue;
    const lines = readFileSync(path, 'utf8').split('\n');
    lines.forEach((line, index) => {
      for (const { what, pattern } of forbidden) {
        const match = pattern.exec(line);
        if (match) problems.push(`${file}:${index + 1}: ${what}: ${match[0].trim()}`);
      }
    });
  }
  return problems;
}
