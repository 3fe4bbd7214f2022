/** Every module specifier of a file: imports, re-exports, type imports, dynamic imports, `require`, `import('x').T`. */
import { parseSync } from 'oxc-parser';

export interface ModuleUse {
  readonly specifier: string;
  readonly line: number;
}

interface Node {
  readonly type: string;
  readonly start: number;
  readonly [key: string]: unknown;
}

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && typeof (value as { type?: unknown }).type === 'string';
}

/** Calls `visit` for every syntax node below `value`. */
export function walk(value: unknown, visit: (node: Node) => void): void {
  if (Array.isArray(value)) {
    for (const item of value) walk(item, visit);
  } else if (isNode(value)) {
    visit(value);
    for (const key in value) {
      const child = value[key];
      if (typeof child === 'object' && child !== null) walk(child, visit);
    }
  }
}

/** @throws {Error} when the file does not parse */
export function parseFile(path: string, text: string): ReturnType<typeof parseSync> {
  const result = parseSync(path, text);
  const error = result.errors[0];
  if (error) throw new Error(`${path}: ${error.message}`);
  return result;
}

/** Several gates read the same files. */
const knownUses = new Map<string, readonly ModuleUse[]>();

/**
 * Specifiers in source order. A dynamic import whose argument is not a literal has no specifier and is not reported.
 */
export function moduleUses(path: string, text: string): readonly ModuleUse[] {
  const key = `${path}\n${text}`;
  const uses = knownUses.get(key) ?? parsedUses(path, text);
  knownUses.set(key, uses);
  return uses;
}

function parsedUses(path: string, text: string): ModuleUse[] {
  const uses: ModuleUse[] = [];
  const lineOf = (offset: number): number => text.slice(0, offset).split('\n').length;
  const add = (node: unknown): void => {
    if (isNode(node) && node.type === 'Literal' && typeof node['value'] === 'string') {
      uses.push({ specifier: node['value'], line: lineOf(node.start) });
    }
  };
  walk(parseFile(path, text).program, (node) => {
    switch (node.type) {
      case 'ImportDeclaration':
      case 'ExportNamedDeclaration':
      case 'ExportAllDeclaration':
      case 'ImportExpression':
      case 'TSImportType':
        add(node['source']);
        break;
      case 'TSExternalModuleReference':
        add(node['expression']);
        break;
      case 'CallExpression': {
        const callee = node['callee'];
        if (isNode(callee) && callee.type === 'Identifier' && callee['name'] === 'require') {
          add((node['arguments'] as unknown[])[0]);
        }
        break;
      }
      default:
    }
  });
  return uses;
}

/**
 * `@scope/name` or `name` of a bare specifier; undefined for relative paths, built-in modules and `#internal` names.
 */
export function packageOfSpecifier(specifier: string): string | undefined {
  if (/^(\.|\/|#|node:|data:|file:)/.test(specifier)) return undefined;
  const parts = specifier.split('/');
  return specifier.startsWith('@') ? parts.slice(0, 2).join('/') : parts[0];
}
