/**
 * The public surface of a built package as text, compared with the committed `api.txt`. Follows the re-exports of every
 * entry to the declarations themselves, and from there to the types they reference, so that any change of a signature
 * shows. Comments and layout are ignored.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { parseFile, walk } from '../workspace/imports.ts';
import { entriesOf, readJson, slashed, type Manifest } from '../workspace/workspace.ts';
import { wrapLine } from './wrap-lines.ts';

interface Target {
  readonly file: string;
  readonly name: string;
}

interface Declarations {
  /** Statements by declared name; overloads and merged declarations have several. */
  readonly local: Map<string, Statement[]>;
  /** Local name to its origin; the name `*` stands for a whole module. */
  readonly imported: Map<string, Target>;
  readonly exported: Map<string, Target>;
}

interface Statement {
  readonly text: string;
  /** Referenced identifiers. */
  readonly mentions: ReadonlySet<string>;
}

interface ExportedName {
  readonly type: string;
  readonly name?: string;
  readonly value?: string;
}

const snapshotName = 'api.txt';

class Reader {
  readonly #modules = new Map<string, Declarations>();

  read(file: string): Declarations {
    const known = this.#modules.get(file);
    if (known) return known;
    const declarations: Declarations = { local: new Map(), imported: new Map(), exported: new Map() };
    this.#modules.set(file, declarations);
    const text = readFileSync(file, 'utf8');
    const { program, comments } = parseFile(file, text);
    for (const node of program.body) {
      if (node.type === 'ImportDeclaration') {
        for (const item of node.specifiers) {
          const name = item.type === 'ImportSpecifier' ? nameOf(item.imported) : '*';
          declarations.imported.set(item.local.name, { file: resolve(file, node.source.value), name });
        }
      } else if (node.type === 'ExportNamedDeclaration' && node.declaration === null) {
        for (const item of node.specifiers) {
          const from = node.source === null ? file : resolve(file, node.source.value);
          declarations.exported.set(nameOf(item.exported), { file: from, name: nameOf(item.local) });
        }
      } else if (node.type === 'ExportAllDeclaration') {
        throw new Error(`${file}: "export *" is not allowed in the public surface`);
      } else {
        const isExport = node.type === 'ExportNamedDeclaration' || node.type === 'ExportDefaultDeclaration';
        const declaration = isExport ? node.declaration : node;
        const statement = {
          text: withoutComments(text, node.start, node.end, comments),
          mentions: identifiers(node),
        };
        const names = node.type === 'ExportDefaultDeclaration' ? ['default'] : declaredNames(declaration);
        for (const name of names) {
          declarations.local.set(name, [...(declarations.local.get(name) ?? []), statement]);
          if (isExport) declarations.exported.set(name, { file, name });
        }
      }
    }
    return declarations;
  }

  /** Follows re-exports and imports to the module that declares the name; undefined when that is another package. */
  find(target: Target, depth = 0): Target | undefined {
    if (depth > 50) throw new Error(`${target.file}: re-exports of "${target.name}" are circular`);
    if (target.name === '*' || !target.file.endsWith('.d.ts') || !existsSync(target.file)) return undefined;
    const { local, imported, exported } = this.read(target.file);
    if (local.has(target.name)) return target;
    const next = exported.get(target.name) ?? imported.get(target.name);
    if (!next || (next.file === target.file && next.name === target.name)) {
      const viaImport = imported.get(target.name);
      if (viaImport) return this.find(viaImport, depth + 1);
      throw new Error(`${target.file}: "${target.name}" is exported but not declared`);
    }
    if (next.file === target.file && imported.has(next.name)) {
      return this.find(imported.get(next.name) ?? next, depth + 1);
    }
    return this.find(next, depth + 1);
  }
}

function nameOf(name: ExportedName): string {
  return name.type === 'Literal' ? String(name.value) : String(name.name);
}

/** Declaration file of a relative import, or the specifier itself when it names a package. */
function resolve(file: string, specifier: string): string {
  return specifier.startsWith('.') ? join(dirname(file), specifier.replace(/\.js$/, '.d.ts')) : specifier;
}

function declaredNames(node: unknown): string[] {
  const declaration = node as { type: string; id?: { name?: string }; declarations?: { id: { name: string } }[] };
  if (declaration.declarations) return declaration.declarations.map(({ id }) => id.name);
  return declaration.id?.name === undefined ? [] : [declaration.id.name];
}

function identifiers(node: unknown): Set<string> {
  const names = new Set<string>();
  walk(node, (child) => {
    if (child.type === 'Identifier') names.add(String(child['name']));
  });
  return names;
}

function withoutComments(
  text: string,
  start: number,
  end: number,
  comments: readonly { start: number; end: number }[],
): string {
  let result = '';
  let from = start;
  for (const comment of comments) {
    if (comment.start < from || comment.end > end) continue;
    result += text.slice(from, comment.start);
    from = comment.end;
  }
  result += text.slice(from, end);
  return result
    .replace(/^export (declare )?/, '')
    .replace(/^declare /, '')
    .split('\n')
    .map((line) => line.trimEnd().replace(/^(?: {4})+/, (indent) => ' '.repeat(indent.length / 2)))
    .filter((line) => line !== '')
    .flatMap(wrapLine)
    .join('\n');
}

/**
 * Entry of a name: a comment where the declaration alone does not say what is exported, then the declaration as
 * emitted.
 */
function entry(name: string, note: string, statements: readonly Statement[]): string {
  const heading = note === '' ? [] : [`// ${name}: ${note}`];
  return [...heading, ...statements.map(({ text }) => text)].join('\n');
}

/** The text of the snapshot. Needs the build output. */
export function describeApi(folder: string): string {
  const manifest = readJson<Manifest>(join(folder, 'package.json'));
  const reader = new Reader();
  const parts = [`Public surface of ${manifest.name}. Written by "pnpm check --update"; changes here are API changes.`];
  const seen = new Set<string>();
  const queue: Target[] = [];
  const visit = (target: Target, statements: readonly Statement[]): void => {
    seen.add(`${target.file} ${target.name}`);
    for (const { mentions } of statements) for (const name of mentions) queue.push({ file: target.file, name });
  };
  let numExports = 0;
  for (const { label, types } of entriesOf(manifest)) {
    if (types === undefined) throw new Error(`${manifest.name}: exports "${label}" without types`);
    const file = join(folder, types);
    if (!existsSync(file)) throw new Error(`${manifest.name}: ${types} is missing, build first`);
    parts.push(`== ${label}`);
    for (const [name] of [...reader.read(file).exported].sort(([a], [b]) => (a < b ? -1 : 1))) {
      numExports += 1;
      const target = reader.find({ file, name });
      const statements = target ? (reader.read(target.file).local.get(target.name) ?? []) : [];
      if (target) visit(target, statements);
      const rename = target && target.name !== name ? `declared as ${target.name}` : '';
      parts.push(entry(name, target ? rename : 'from another package', statements));
    }
  }
  if (numExports === 0) throw new Error(`${manifest.name}: no export found in its declarations`);
  parts.push('== reachable, not exported', ...reachable(reader, queue, seen, visit, folder));
  return `${parts.join('\n\n')}\n`;
}

function reachable(
  reader: Reader,
  queue: Target[],
  seen: Set<string>,
  visit: (target: Target, statements: readonly Statement[]) => void,
  folder: string,
): string[] {
  const parts: string[] = [];
  for (let mention = queue.pop(); mention; mention = queue.pop()) {
    const { local, imported } = reader.read(mention.file);
    const isLocal = local.has(mention.name);
    const from = isLocal ? mention : imported.get(mention.name);
    const target = from && reader.find(from);
    if (!target || seen.has(`${target.file} ${target.name}`)) continue;
    const statements = reader.read(target.file).local.get(target.name) ?? [];
    visit(target, statements);
    const where = slashed(relative(join(folder, 'dist'), target.file));
    parts.push(entry(target.name, where, statements));
  }
  return parts.sort();
}

/** Compares with `api.txt`, or writes it with `update`. */
export function checkApi(folder: string, update: boolean): string[] {
  const path = join(folder, snapshotName);
  const actual = describeApi(folder);
  if (update) {
    writeFileSync(path, actual);
    return [];
  }
  if (!existsSync(path)) return [`${snapshotName} is missing; write it with "pnpm check --update"`];
  const before = partsOf(readFileSync(path, 'utf8'));
  const after = partsOf(actual);
  const changes = [...difference(before, after, '-'), ...difference(after, before, '+')];
  if (changes.length === 0) return [];
  return [['the public surface changed; if intended, "pnpm check --update" and commit:', ...changes].join('\n')];
}

/** Declarations by their text without layout. */
function partsOf(snapshot: string): Map<string, string> {
  const parts = snapshot.trimEnd().split(/\r?\n\r?\n/);
  return new Map(parts.map((part) => [part.replace(/\s+/g, ' '), part]));
}

function difference(from: ReadonlyMap<string, string>, without: ReadonlyMap<string, string>, mark: string): string[] {
  return [...from].filter(([key]) => !without.has(key)).map(([, part]) => part.replace(/^/gm, `  ${mark} `));
}
