/** Small workspaces in temporary folders, in which canaries plant violations. */
import { cpSync, mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';
import { programOf, runProgram, type Outcome } from '../src/workspace/run.ts';

export const gatesFolder: string = join(dirname(fileURLToPath(import.meta.url)), '..');
export const repoFolder: string = join(gatesFolder, '..', '..');

/** Contents by path; an object is written as JSON. */
export type Files = Readonly<Record<string, string | object>>;

/** Writes the files into a new folder, which is removed after the test. */
export function createFolder(files: Files): string {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'winnow gate ')));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  addFiles(folder, files);
  return folder;
}

export function addFiles(folder: string, files: Files): void {
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), typeof content === 'string' ? content : JSON.stringify(content, null, 2));
  }
}

/** Copies a settings file of the real repository, so that the canary meets the real rules. */
export function copySettings(folder: string, ...paths: string[]): void {
  for (const path of paths) cpSync(join(repoFolder, path), join(folder, path), { recursive: true });
}

/** Runs a program of an npm package that the gates depend on. */
export function runTool(
  packageName: string,
  program: string,
  programArguments: readonly string[],
  cwd: string,
): Outcome {
  return runProgram(process.execPath, [programOf(packageName, program, gatesFolder), ...programArguments], { cwd });
}

const manifest = (name: string, extra: object): object => ({
  name: `@winnow/${name}`,
  version: '0.0.0',
  license: 'MIT',
  type: 'module',
  sideEffects: false,
  engines: { node: '>=22.12.0' },
  files: ['dist', 'src', '!src/**/*.test.ts', '!src/**/__fixtures__'],
  exports: {
    '.': { '@winnow/source': './src/index.ts', types: './dist/index.d.ts', default: './dist/index.js' },
    './package.json': './package.json',
  },
  scripts: { build: 'x', typecheck: 'x', test: 'x', gates: 'x' },
  ...extra,
});

/** A library that passes every gate: one function, built. */
export function libraryFiles(name: string, extra: object = {}): Files {
  const at = `packages/${name}`;
  return {
    [`${at}/package.json`]: manifest(name, extra),
    [`${at}/README.md`]:
      `# ${name}\n\n\`\`\`ts\nimport { double } from '@winnow/${name}';\n\n` +
      `if (double(2) !== 4) throw new Error('wrong');\n\`\`\`\n`,
    [`${at}/LICENSE`]: 'MIT\n',
    [`${at}/tsconfig.json`]: '{}',
    [`${at}/tsconfig.build.json`]: '{}',
    [`${at}/tsup.config.mjs`]: 'export default {};\n',
    [`${at}/vitest.config.mjs`]: 'export default {};\n',
    [`${at}/src/index.ts`]: "export { double } from './double.js';\n",
    [`${at}/src/double.ts`]: 'export function double(value: number): number {\n  return value * 2;\n}\n',
    [`${at}/src/double.test.ts`]: "import { double } from './double.js';\n\ndouble(2);\n",
    [`${at}/dist/index.js`]: "export { double } from './double.js';\n",
    [`${at}/dist/double.js`]: 'export function double(value) { return value * 2; }\n',
    [`${at}/dist/index.d.ts`]: "export { double } from './double.js';\n",
    [`${at}/dist/double.d.ts`]: '/** Twice. */\nexport declare function double(value: number): number;\n',
  };
}

/** A workspace of libraries `low` and `high` (which needs `low`) and the helper `helper`. */
export function workspaceFiles(): Files {
  return {
    'pnpm-workspace.yaml': 'packages:\n  - packages/*\ncatalog:\n  left-pad: 1.3.0\n',
    'package.json': { name: 'fixture', private: true, devDependencies: { 'left-pad': 'catalog:' } },
    'layers.json': { layers: [['low', 'other'], ['high']], dev: ['helper'], devUses: ['low'] },
    ...libraryFiles('low'),
    ...libraryFiles('other'),
    ...libraryFiles('helper'),
    ...libraryFiles('high', {
      dependencies: { '@winnow/low': 'workspace:*' },
      devDependencies: { '@winnow/helper': 'workspace:*' },
    }),
    'packages/high/src/uses-low.ts':
      "import { double } from '@winnow/low';\n\nexport const four: number = double(2);\n",
    'packages/high/src/uses-helper.test.ts': "import { double } from '@winnow/helper';\n\ndouble(1);\n",
  };
}
