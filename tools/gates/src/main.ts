/**
 * Command line of the gates: `workspace`, `documents`, `changesets`, `examples`, `budgets`, `cpp-format`; `package` in its
 * folder; `update` and `format-cpp` write.
 */
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { checkDocuments, writeDocuments } from './documents/documents.ts';
import { checkExamples, linkedPackages } from './documents/examples.ts';
import { checkTranscripts } from './documents/transcripts.ts';
import { checkDrawings, checkLinks, checkNamedFiles } from './documents/links.ts';
import { checkApi } from './releases/api.ts';
import { checkChangesets } from './releases/changesets.ts';
import { checkManifests } from './releases/manifests.ts';
import { checkReleasePlan } from './releases/release-plan.ts';
import { checkArchive, checkAttw, checkPublint, withArchive } from './releases/publish.ts';
import { checkSize, type SizeBudgets } from './releases/size.ts';
import { checkBoundaries } from './sources/boundaries.ts';
import { budgetLine, lineBudgets } from './sources/budgets.ts';
import { checkCatalog } from './sources/catalog.ts';
import { checkCppFormat, writeCppFormat } from './sources/cpp-format.ts';
import { checkFolderCycles } from './sources/folder-cycles.ts';
import { checkGenerated, checkKernelLines, countLines, kernelBudgets } from './sources/kernels.ts';
import { checkStructure } from './sources/structure.ts';
import { checkTypeChecked } from './sources/type-checked.ts';
import { checkText } from './sources/text-scan.ts';
import {
  listFiles,
  placesOf,
  readJson,
  readWorkspace,
  type Workspace,
  type WorkspacePackage,
} from './workspace/workspace.ts';

const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..', '..');
const kernelPackage = 'packages/backend-wasm';
let numProblems = 0;

function report(gate: string, problems: readonly string[], notes: readonly string[] = []): void {
  numProblems += problems.length;
  process.stdout.write(`${problems.length === 0 ? 'ok  ' : 'FAIL'} ${gate}\n`);
  for (const note of notes) process.stdout.write(`       ${note.replaceAll('\n', '\n       ')}\n`);
  for (const problem of problems) process.stdout.write(`     ${problem.replaceAll('\n', '\n     ')}\n`);
}

/** With locations, only problems of those packages are shown. */
function checkWorkspace(locations: readonly string[]): void {
  const workspace = readWorkspace(root);
  const here = (text: string): boolean =>
    locations.length === 0 || locations.some((location) => text.startsWith(location));
  report('layers', checkBoundaries(workspace).filter(here));
  report('folder cycles', checkFolderCycles(placesOf(workspace)).filter(here));
  const structure = checkStructure(workspace);
  report('house structure', structure.problems.filter(here), structure.warnings.filter(here));
  report('type-checked files', checkTypeChecked(workspace).filter(here));
  report('catalog', checkCatalog(workspace).filter(here));
  report('manifests', checkManifests(workspace).filter(here));
  report('text', checkText(root).filter(here));
  const isChecked = (folder: string): boolean => locations.length === 0 || locations.includes(folder);
  if (isChecked(kernelPackage)) report('generated files', checkGenerated(join(root, kernelPackage)));
  const budgets = kernelBudgets.filter(({ folder }) => isChecked(folder));
  if (budgets.length === 0) return;
  const notes = budgets.map((budget) => `${countLines(root, budget)} ${budget.name}, the budget is ${budget.limit}`);
  report('kernel lines', checkKernelLines(root, budgets), notes);
}

/** Reports what the check finds; a check that throws counts as a problem, too. */
async function attempt(gate: string, check: () => readonly string[] | Promise<readonly string[]>): Promise<void> {
  try {
    report(gate, await check());
  } catch (error) {
    report(gate, [error instanceof Error ? error.message : String(error)]);
  }
}

async function checkPackage(folder: string): Promise<void> {
  const workspace = readWorkspace(root);
  const entry = workspace.packages.find((other) => other.folder === folder);
  if (!entry) throw new Error('run "gates package" in the folder of a package');
  const isLibrary = entry.manifest.exports !== undefined;
  await attempt('pack', () =>
    withArchive(folder, async (archive) => {
      await attempt('publint', () => checkPublint(folder, archive));
      if (isLibrary) await attempt('attw', () => checkAttw(archive));
      await attempt('archive', () => checkArchive(archive));
      return [];
    }),
  );
  if (isLibrary) await checkLibrary(workspace, entry);
}

/** What programs do not have: an API, entries for bundlers, and examples that import them. */
async function checkLibrary(workspace: Workspace, entry: WorkspacePackage): Promise<void> {
  const { folder } = entry;
  await attempt('api', () => checkApi(folder, false));
  await attempt('size', async () => {
    const size = await checkSize(folder, readJson<SizeBudgets>(join(root, 'size-budgets.json')));
    for (const line of size.lines) process.stdout.write(`       ${line}\n`);
    return size.problems;
  });
  const readme = join(folder, 'README.md');
  await attempt('examples', () => checkExamples(workspace, folder, [readme], linkedPackages(workspace, entry)));
}

/** Rewrites the API snapshots of the given folders, or of all public packages. */
function updateSnapshots(locations: readonly string[]): void {
  for (const { folder, location, manifest } of readWorkspace(root).packages) {
    const isPublic = manifest.private !== true && manifest.exports !== undefined;
    if (locations.length === 0 ? isPublic : locations.includes(location)) {
      report(`api snapshot of ${location}`, checkApi(folder, true));
    }
  }
}

/** The root README and the guides, with the dependencies of the documentation package. */
async function checkGuides(): Promise<void> {
  const workspace = readWorkspace(root);
  const guides = listFiles(join(root, 'docs', 'guides'), (path) => path.endsWith('.md'));
  const documents = [join(root, 'README.md'), ...guides.map((path) => join(root, 'docs', 'guides', path))];
  await attempt('examples', () => checkExamples(workspace, join(root, 'docs'), documents, []));
  const scratch = join(root, 'docs', '.cache', 'transcripts');
  const demo = pathToFileURL(join(root, 'scripts', 'bootstrap', 'demo.mjs')).href;
  const { demoArguments } = (await import(demo)) as { readonly demoArguments: readonly string[] };
  await attempt('transcripts', () =>
    checkTranscripts(documents, scratch, join(root, 'apps', 'cli', 'dist', 'main.js'), demoArguments),
  );
}

async function checkAllDocuments(): Promise<void> {
  await attempt('links', () => [...checkLinks(root), ...checkDrawings(root), ...checkNamedFiles(root)]);
  await attempt('documents', () => checkDocuments(readWorkspace(root)));
}

const gates: Readonly<Record<string, () => void | Promise<void>>> = {
  workspace: () => checkWorkspace(process.argv.slice(3)),
  package: () => checkPackage(process.cwd()),
  budgets: () => {
    for (const budget of lineBudgets(root, process.argv.slice(3))) process.stdout.write(`${budgetLine(budget)}\n`);
  },
  examples: checkGuides,
  documents: checkAllDocuments,
  'cpp-format': () => report('format of C++', checkCppFormat(root)),
  'format-cpp': () => writeCppFormat(root),
  update: () => {
    writeDocuments(readWorkspace(root));
    updateSnapshots(process.argv.slice(3));
  },
  changesets: () => {
    const workspace = readWorkspace(root);
    const { problems, notes } = checkChangesets(workspace);
    report('changesets', problems, notes);
    report('release plan', checkReleasePlan(workspace));
  },
};

const gate = gates[process.argv[2] ?? ''];
if (gate) await gate();
else throw new Error(`usage: gates ${Object.keys(gates).join('|')}`);
if (numProblems > 0) process.exitCode = 1;
