/** Places in a schema, and errors that name them. */
import { describeValue, FormatError, isRecord } from '@winnow/tensor';
import type { JsonSchema, Located } from './facts.js';

/** Path of a schema that is derived from another one, such as its negation. No schema in the document has such a path. */
export function derivedPath(path: string, kind: 'not' | 'absent' | 'present', of = ''): string {
  return `${path}~${kind}(${of})`;
}

export function isDerived(path: string): boolean {
  return /~(?:not|absent|present)\(/.test(path);
}

/** The place in the document that a path begins with. */
export function placeOf(path: string): string {
  return path.replace(/~(?:not|absent|present)\(.*$/s, '');
}

export function fail(path: string, message: string): never {
  throw new FormatError({ source: 'JSON schema', field: placeOf(path), message });
}

/** Checks that the value is a schema. */
export function locate(schema: unknown, path: string): Located {
  if (typeof schema === 'boolean') return { schema, path };
  if (isRecord(schema)) return { schema: schema as JsonSchema, path };
  return fail(path, `expected a schema, got ${describeValue(schema)}`);
}

export function escapePointer(name: string): string {
  return name.replaceAll('~', '~0').replaceAll('/', '~1');
}
