/** Places in a schema, and errors that name them. */
import { FormatError } from '@winnow/tensor';
import type { JsonSchema, Located } from './facts.js';

export function fail(path: string, message: string): never {
  throw new FormatError({ source: 'JSON schema', field: path, message });
}

/** Checks that the value is a schema. */
export function locate(schema: unknown, path: string): Located {
  if (typeof schema === 'boolean') return { schema, path };
  if (typeof schema === 'object' && schema !== null && !Array.isArray(schema)) {
    return { schema: schema as JsonSchema, path };
  }
  return fail(path, `expected a schema, got ${JSON.stringify(schema)}`);
}

export function escapePointer(name: string): string {
  return name.replaceAll('~', '~0').replaceAll('/', '~1');
}
