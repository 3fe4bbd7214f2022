/**
 * TypeDoc plugin: one site of all packages and all documents.
 *
 * Modules get the names that one imports and the README of their package; documents get their first heading as their name
 * and their folder as their group. Links to files and folders of the repository lead to the pages made of them.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Converter, MinimalSourceFile, ReflectionKind, RendererEvent } from 'typedoc';

const docsFolder = dirname(fileURLToPath(import.meta.url));
const groupOfFolder = {
  guides: 'Guides',
  recipes: 'Recipes',
  formats: 'File formats',
  decisions: 'Decisions',
  benchmarks: 'Benchmarks',
  examples: 'Examples',
  apps: 'Programs',
};

const slashed = (path) => path.split(sep).join('/');

/**
 * The entry of package.json whose source a file is: `@winnow/hub/node` for `packages/hub/src/index.node.ts`. The entry `.` gets
 * the README of its package.
 */
function entryOf(folder, file) {
  const { name, exports: entries } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  const source = `./${slashed(relative(folder, file))}`;
  for (const [path, target] of Object.entries(entries)) {
    const sources = target['@winnow/source'];
    const isMain = path === '.';
    if (sources === source) return { name: `${name}${path.slice(1)}`, isMain };
    if (sources?.node === source) return { name: `${name}${path.slice(1)} (Node)`, isMain: false };
    if (sources?.default === source) return { name: `${name}${path.slice(1)}`, isMain };
  }
  throw new Error(`${file} is no entry of ${name}`);
}

/** Takes the first line off, when it is a heading, and returns its text. */
function takeHeading(parts) {
  if (!parts[0]?.text.startsWith('# ')) return '';
  let heading = '';
  for (;;) {
    const end = parts[0].text.indexOf('\n');
    heading += end < 0 ? parts[0].text : parts[0].text.slice(0, end);
    if (end < 0) parts.shift();
    else parts[0].text = parts[0].text.slice(end + 1);
    if (end >= 0 || parts.length === 0) return heading.slice(2).replaceAll('`', '');
  }
}

/** @param {import('typedoc').Application} app */
export function load(app) {
  app.converter.on(Converter.EVENT_CREATE_DOCUMENT, (_, document) => {
    const file = document.project.files.getReflectionPath(document) ?? '';
    document.name = takeHeading(document.content);
    if (document.name === '') throw new Error(`${file}: a document begins with its heading`);
    const path = slashed(relative(join(docsFolder, '..'), file)).replace(/^docs\//, '');
    document.frontmatter.group = groupOfFolder[path.split('/')[0]] ?? 'Overview';
    if (basename(file) === 'README.md') document.project.files.registerReflectionPath(slashed(dirname(file)), document);
  });

  app.converter.on(Converter.EVENT_CREATE_DECLARATION, (context, reflection) => {
    if (!reflection.kindOf(ReflectionKind.Module) || reflection.parent !== context.project) return;
    const [declaration] = context.getSymbolFromReflection(reflection)?.declarations ?? [];
    if (declaration === undefined) throw new Error(`${reflection.name}: a module without a file`);
    const file = declaration.getSourceFile().fileName;
    const folder = join(dirname(file), '..');
    const { name, isMain } = entryOf(folder, file);
    reflection.name = name;
    const readme = slashed(join(folder, 'README.md'));
    if (!isMain || !existsSync(readme)) return;
    const text = readFileSync(readme, 'utf8').replace(/^# .+/, '');
    const { files } = context.project;
    reflection.readme = app.converter.parseRawComment(new MinimalSourceFile(text, readme), files).content;
    for (const path of [readme, slashed(folder)]) files.registerReflectionPath(path, reflection);
  });

  // the page has the name of the project above the README already
  app.converter.on(Converter.EVENT_END, ({ project }) => void takeHeading(project.readme ?? [{ text: '' }]));

  app.renderer.on(RendererEvent.END, ({ outputDirectory, project }) => {
    const list = join(docsFolder, '..', 'llms.txt');
    if (!existsSync(list)) return;
    const { files } = project;
    const text = readFileSync(list, 'utf8').replaceAll(/\]\(([^)]+)\)/g, (_, path) => {
      const id = files.register(slashed(list), path)?.target;
      const target = id === undefined ? undefined : files.resolve(id, project);
      if (typeof target !== 'object') throw new Error(`llms.txt: the site has no page of ${path}`);
      return `](${app.renderer.router?.getFullUrl(target)})`;
    });
    writeFileSync(join(outputDirectory, 'llms.txt'), text);
  });
}
