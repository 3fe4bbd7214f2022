/** Examples of a README: every block marked `ts` is type-checked and run, with the built packages, as a reader would. */
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { transform } from 'esbuild';
import { programOf, runProgram } from './run.ts';
import { readJson, type Workspace, type WorkspacePackage } from './workspace.ts';

const gatesFolder = join(dirname(fileURLToPath(import.meta.url)), '..');
const runLimitMs = 120_000;

export interface Example {
  /** Line of the README where its code begins. */
  readonly line: number;
  readonly code: string;
  /** False for a block marked `ts no-run`: it needs what a test machine does not have, and is type-checked only. */
  readonly run: boolean;
}

export function extractExamples(markdown: string): Example[] {
  const examples: Example[] = [];
  const lines = markdown.split(/\r?\n/);
  for (let index = 0; index < lines.length; index++) {
    const fence = /^(\s*)```(ts|typescript)( no-run)?\s*$/.exec(lines[index] ?? '');
    if (!fence) continue;
    const start = index + 1;
    while (index + 1 < lines.length && !/^\s*```\s*$/.test(lines[index + 1] ?? '')) index += 1;
    const code = lines.slice(start, index + 1).join('\n');
    examples.push({ line: start + 1, code, run: fence[3] === undefined });
  }
  return examples;
}

/**
 * The package itself and everything of the workspace that it needs, directly or not, and what `examplesUse` of layers.json
 * adds for it (turbo.json has to build that before).
 */
export function linkedPackages(workspace: Workspace, entry: WorkspacePackage): WorkspacePackage[] {
  const byName = new Map(workspace.packages.map((other) => [other.name, other]));
  const { examplesUse = {} } = readJson<{ examplesUse?: Record<string, string[]> }>(
    join(workspace.root, 'layers.json'),
  );
  const extra = new Set(examplesUse[entry.shortName]);
  const found = new Set([entry, ...workspace.packages.filter(({ shortName }) => extra.has(shortName))]);
  for (const { manifest } of found) {
    for (const name of Object.keys({ ...manifest.dependencies, ...manifest.devDependencies })) {
      const target = byName.get(name);
      if (target) found.add(target);
    }
  }
  return [...found];
}

/**
 * Checks the examples of `readme` in a scratch folder `<folder>/.cache/examples` that sees `linked` as installed.
 * Programs run in the workspace root.
 */
export async function checkExamples(
  workspace: Workspace,
  folder: string,
  readme: string,
  linked: readonly WorkspacePackage[],
): Promise<string[]> {
  if (!existsSync(readme)) return ['README.md is missing'];
  const examples = extractExamples(readFileSync(readme, 'utf8'));
  if (examples.length === 0) return ['README.md has no ```ts block, so there is nothing to check'];
  const scratch = join(folder, '.cache', 'examples');
  rmSync(scratch, { recursive: true, force: true });
  for (const { name, folder: target } of linked) {
    const link = join(scratch, 'node_modules', name);
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(target, link, 'junction');
  }
  mkdirSync(scratch, { recursive: true });
  writeFileSync(join(scratch, 'package.json'), '{ "type": "module", "private": true }\n');
  const nameOf = (example: Example): string => `line-${example.line}`;
  for (const example of examples)
    writeFileSync(join(scratch, `${nameOf(example)}.ts`), `${example.code}\nexport {};\n`);
  const problems = typeCheck(scratch);
  for (const example of examples) {
    if (!example.run || problems.length > 0) continue;
    const { code } = await transform(example.code, { loader: 'ts', format: 'esm', target: 'es2024' });
    const file = join(scratch, `${nameOf(example)}.mjs`);
    writeFileSync(file, code);
    const outcome = runProgram(process.execPath, [file], { cwd: workspace.root, timeoutMs: runLimitMs });
    if (outcome.code !== 0) {
      problems.push(`the example at line ${example.line} ends with code ${outcome.code}:\n${outcome.output.trim()}`);
    }
  }
  return problems;
}

function typeCheck(scratch: string): string[] {
  const settings = {
    compilerOptions: {
      target: 'es2024',
      lib: ['es2024', 'esnext.disposable'],
      module: 'nodenext',
      strict: true,
      noEmit: true,
      skipLibCheck: false,
      types: ['node'],
      typeRoots: [join(gatesFolder, 'node_modules', '@types')],
    },
    include: ['*.ts'],
  };
  writeFileSync(join(scratch, 'tsconfig.json'), JSON.stringify(settings, null, 2));
  const tsc = programOf('typescript', 'tsc', gatesFolder);
  const outcome = runProgram(process.execPath, [tsc, '-p', 'tsconfig.json'], { cwd: scratch });
  if (outcome.code === 0) return [];
  const errors = ownErrors(outcome.output);
  return errors === '' ? [] : [`type errors (file names give the line in the README):\n${errors}`];
}

/**
 * Errors without those inside declarations of packages from elsewhere, which may want types that an example has no reason to
 * load, such as those of browsers. Ours are checked: they are links, not in the store of pnpm.
 */
export function ownErrors(output: string): string {
  let isOurs = true;
  const lines = output.split(/\r?\n/).filter((line) => {
    if (/^\S/.test(line)) isOurs = !line.includes('node_modules/.pnpm/');
    return isOurs;
  });
  return lines.join('\n').trim();
}
