/** Generated documents: `llms.txt` and the picture of the layers. Both are written by `pnpm check --update`. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { documentSizes } from '../workspace/document-sizes.ts';
import { listFiles, readJson, type Workspace, type WorkspacePackage } from '../workspace/workspace.ts';
import { extractExamples } from './examples.ts';
import { drawLayers, type LayerList } from './layers-picture.ts';
import { parseDocument, readDocument } from './markdown.ts';

/** The maximum length that the root README promises for a first program, including imports. */
const maxFirstLines = 5;

/** @returns what is out of date or too long, and packages that the root README does not name */
export function checkDocuments(workspace: Workspace): string[] {
  const problems: string[] = [];
  for (const [path, text] of Object.entries(generatedDocuments(workspace))) {
    const file = join(workspace.root, path);
    if (!existsSync(file)) problems.push(`${path} is missing; "pnpm check --update" writes it`);
    else if (readFileSync(file, 'utf8') !== text)
      problems.push(`${path} is out of date; "pnpm check --update" writes it`);
  }
  for (const { name, value, limit, place } of documentSizes(workspace.root)) {
    if (value > limit) problems.push(`${place}: ${value} ${name}, the limit is ${limit}`);
  }
  const readmeText = readFileSync(join(workspace.root, 'README.md'), 'utf8');
  for (const { line, code } of extractExamples(readmeText)) {
    const count = code.split('\n').filter((text) => text.trim() !== '').length;
    if (count > maxFirstLines) problems.push(`README.md:${line}: ${count} lines of code, at most ${maxFirstLines}`);
  }
  const readme = parseDocument(readmeText);
  const targets = new Set(readme.links.map(({ target }) => target));
  for (const { location } of libraries(workspace)) {
    if (!targets.has(`${location}/README.md`)) problems.push(`README.md has no link to ${location}/README.md`);
  }
  return problems;
}

export function writeDocuments(workspace: Workspace): void {
  for (const [path, text] of Object.entries(generatedDocuments(workspace))) {
    writeFileSync(join(workspace.root, path), text);
  }
}

function generatedDocuments(workspace: Workspace): Record<string, string> {
  return {
    'llms.txt': describeForModels(workspace),
    'docs/images/layers.svg': drawLayers(readJson<LayerList>(join(workspace.root, 'layers.json')), workspace.packages),
  };
}

function libraries({ packages }: Workspace): WorkspacePackage[] {
  return packages.filter(({ location, manifest }) => location.startsWith('packages/') && manifest.private !== true);
}

/**
 * The repository described for language models, in the format of https://llmstxt.org: title, summary, lists of links
 * with a line each.
 */
function describeForModels(workspace: Workspace): string {
  const { root, packages } = workspace;
  const document = (path: string): string => {
    const { title, summary } = readDocument(join(root, path));
    return `- [${title}](${path})${summary === '' ? '' : `: ${summary}`}`;
  };
  const documents = (folder: string): string[] =>
    listFiles(join(root, folder), (path) => /^[^/]+\.md$/.test(path)).map((path) => document(`${folder}/${path}`));
  const described = (entries: readonly WorkspacePackage[], nameOf: (entry: WorkspacePackage) => string): string[] =>
    entries.map((entry) => `- [${nameOf(entry)}](${entry.location}/README.md): ${entry.manifest.description}`);
  const inFolder = (folder: string): WorkspacePackage[] =>
    packages.filter(({ location }) => location.startsWith(`${folder}/`));
  const { title, summary } = readDocument(join(root, 'README.md'));
  return [
    `# ${title}`,
    '',
    `> ${summary}`,
    '',
    'Packages are ES modules with types, for Node >= 22.12 and browsers. Native kernels are optional.',
    '`loadModel` of `@winnow/engine` opens a GGUF file or a Hugging Face folder and generates text; `demoModelUrl` of',
    '`@winnow/demo-model` is a model of 3 million parameters that needs no download. The command is `winnow`.',
    '',
    '## Guides',
    '',
    ...documents('docs/guides'),
    document('docs/models.md'),
    document('docs/ops.md'),
    '',
    '## Packages',
    '',
    ...described(libraries(workspace), ({ name }) => name),
    '',
    '## Programs',
    '',
    ...described(inFolder('apps'), ({ shortName }) => shortName),
    '',
    '## Examples',
    '',
    ...described(inFolder('examples'), ({ shortName }) => shortName),
    '',
    '## Contributing',
    '',
    document('CONTRIBUTING.md'),
    ...documents('docs/recipes'),
    '',
    '## Optional',
    '',
    ...documents('docs/formats'),
    document('docs/decisions/README.md'),
    ...documents('docs/benchmarks'),
    '',
  ].join('\n');
}
