/**
 * Examples of a README or guide: every block marked `ts` is type-checked and run with the built packages. `ts
 * continued` continues the program of the previous block, `ts served` finds `winnow serve` at its address, and a block
 * with `no-run` is only type-checked. What a program prints is compared with its comments (claims.ts).
 */
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { transform } from 'esbuild';
import { programOf, runProgram } from '../workspace/run.ts';
import { readJson, type Workspace, type WorkspacePackage } from '../workspace/workspace.ts';
import { checkClaims, recordClaims, type Print } from './claims.ts';

const gatesFolder = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
const runLimitMs = 120_000;

export interface Example {
  /** Line of the document where its code begins. */
  readonly line: number;
  /** Code of its blocks at their line numbers in the document, so that errors refer to them. */
  readonly code: string;
  /** False for a block marked `no-run`, which needs something that a test machine lacks: it is only type-checked. */
  readonly run: boolean;
  /** True for a block marked `served`: while it runs, a server with the demo model listens at `documentedAddress`. */
  readonly served: boolean;
}

/** The server address in documents; the gate's own server uses a free port, which is substituted in the code. */
const documentedAddress = 'http://127.0.0.1:8080';

/** @throws {Error} for a block without a predecessor to continue */
export function extractExamples(markdown: string): Example[] {
  const examples: Example[] = [];
  const lines = markdown.split(/\r?\n/);
  for (let index = 0; index < lines.length; index++) {
    const fence = /^\s*```(?:ts|typescript)( continued)?( served)?( no-run)?\s*$/.exec(lines[index] ?? '');
    if (!fence) continue;
    const start = index + 1;
    while (index + 1 < lines.length && !/^\s*```\s*$/.test(lines[index + 1] ?? '')) index += 1;
    const before = fence[1] === undefined ? undefined : examples.findLast(({ run }) => run);
    if (fence[1] !== undefined && !before) throw new Error(`line ${start}: nothing before it to continue`);
    const block = lines.slice(start, index + 1).join('\n');
    const example = {
      line: before?.line ?? start + 1,
      code: before ? before.code + '\n'.repeat(start + 2 - before.line - numLines(before.code)) + block : block,
      run: fence[3] === undefined,
      served: fence[2] !== undefined || before?.served === true,
    };
    if (before && example.run) examples[examples.indexOf(before)] = example;
    else examples.push(example);
  }
  return examples;
}

function numLines(text: string): number {
  return text.split('\n').length;
}

/**
 * The package itself, its direct and indirect workspace dependencies, and those that `examplesUse` of layers.json adds
 * (turbo.json must build them first).
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
 * Checks the examples of `documents` in a scratch folder `<folder>/.cache/examples` in which `linked` is installed in
 * addition to the dependencies of `folder`. Programs run in the workspace root.
 */
export async function checkExamples(
  workspace: Workspace,
  folder: string,
  documents: readonly string[],
  linked: readonly WorkspacePackage[],
): Promise<string[]> {
  const programs: Program[] = [];
  for (const document of documents) {
    const file = basename(document);
    if (!existsSync(document)) return [`${file} is missing`];
    for (const [index, example] of extractExamples(readFileSync(document, 'utf8')).entries()) {
      const name = `${basename(file, '.md')}.line-${example.line}${example.run ? '' : `.${index}`}`;
      programs.push({ name, document: file, example });
    }
  }
  if (programs.length === 0) return [`${documents.join(', ')}: no \`\`\`ts block, so there is nothing to check`];
  const scratch = join(folder, '.cache', 'examples');
  rmSync(scratch, { recursive: true, force: true });
  for (const { name, folder: target } of linked) {
    const link = join(scratch, 'node_modules', name);
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(target, link, 'junction');
  }
  mkdirSync(scratch, { recursive: true });
  writeFileSync(join(scratch, 'package.json'), '{ "type": "module", "private": true }\n');
  for (const { name, example } of programs) {
    writeFileSync(join(scratch, `${name}.ts`), `${'\n'.repeat(example.line - 1)}${example.code}\nexport {};\n`);
  }
  const problems = typeCheck(scratch);
  if (problems.length > 0) return problems;
  const runnable = programs.filter(({ example }) => example.run);
  const server = runnable.some(({ example }) => example.served) ? await startServer(workspace) : undefined;
  try {
    for (const program of runnable) problems.push(...(await runExample(program, scratch, workspace.root, server?.url)));
  } finally {
    server?.stop();
  }
  return problems;
}

interface Program {
  /** Name of its files in the scratch folder, without extension. */
  readonly name: string;
  readonly document: string;
  readonly example: Example;
}

/** Runs an example in `root` and compares what it prints with its comments. */
async function runExample(
  { name, document, example }: Program,
  scratch: string,
  root: string,
  serverUrl: string | undefined,
): Promise<string[]> {
  const report = join(scratch, `${name}.printed`);
  writeFileSync(report, '');
  const recorded = recordClaims(example.code, example.line, report);
  const { code } = await transform(recorded.code, { loader: 'ts', format: 'esm', target: 'es2024' });
  const file = join(scratch, `${name}.mjs`);
  const isServed = example.served && serverUrl !== undefined;
  writeFileSync(file, isServed ? code.replaceAll(documentedAddress, serverUrl) : code);
  // documents show what WebAssembly computes, whether or not native kernels were compiled
  const env = { ...process.env, WINNOW_NATIVE: 'off' };
  const outcome = runProgram(process.execPath, [file], { cwd: root, timeoutMs: runLimitMs, env });
  if (outcome.code !== 0) {
    return [`the example at ${document}:${example.line} ends with code ${outcome.code}:\n${outcome.output.trim()}`];
  }
  const prints = readFileSync(report, 'utf8').split('\n').slice(0, -1);
  return checkClaims(
    document,
    recorded.claims,
    prints.map((print) => JSON.parse(print) as Print),
  );
}

/**
 * `winnow serve` with the demo model at a free port of this machine.
 * @throws {Error} when it exits before it prints its address
 */
async function startServer(workspace: Workspace): Promise<{ readonly url: string; stop(): void }> {
  const program = join(workspace.root, 'apps', 'cli', 'dist', 'main.js');
  const child = spawn(process.execPath, [program, 'serve', '--port', '0', '-q'], { stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  const url = await new Promise<string>((resolve, reject) => {
    const listen = (chunk: Buffer): void => {
      output += chunk.toString();
      const address = /listening on (http:\S+)/.exec(output)?.[1];
      if (address) resolve(address);
    };
    child.stdout.on('data', listen);
    child.stderr.on('data', listen);
    child.on('error', reject);
    child.on('exit', () => reject(new Error(`winnow serve ended:\n${output}`)));
  });
  return { url, stop: () => child.kill() };
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
  return errors === '' ? [] : [`type errors (file names give the document; lines are its lines):\n${errors}`];
}

/**
 * Errors except those inside declarations of external packages, which may need types that an example does not load,
 * such as those of browsers. Our own packages are checked: they are links outside the pnpm store.
 */
export function ownErrors(output: string): string {
  let isOurs = true;
  const lines = output.split(/\r?\n/).filter((line) => {
    if (/^\S/.test(line)) isOurs = !line.includes('node_modules/.pnpm/');
    return isOurs;
  });
  return lines.join('\n').trim();
}
