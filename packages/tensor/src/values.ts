/** Values that come from outside: from untyped code, JSON and text. */

/** Whether a value is an object with named fields: neither an array nor null. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Maximum number of characters of a value in a message. */
const maxLength = 60;

/** Names a value in an error message: `nothing`, `null`, `true`, `0.5`, `"text"`, `an array of 3` or `an object`. */
export function describeValue(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (Array.isArray(value)) return `an array of ${value.length}`;
  if (ArrayBuffer.isView(value)) return 'an array of numbers';
  if (typeof value === 'object' && value !== null) return 'an object';
  if (typeof value !== 'string') return String(value);
  return JSON.stringify(value.length > maxLength ? `${value.slice(0, maxLength)}...` : value);
}

/** A copy without the fields that are undefined, which exact optional properties do not allow. */
export function definedFields<T extends object>(fields: { [K in keyof T]?: T[K] | undefined }): Partial<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Partial<T>;
}

/** The bytes of a base64 text. @throws {DOMException} for other characters */
export function bytesOfBase64(text: string): Uint8Array {
  const { atob } = globalThis as unknown as { atob(text: string): string };
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** Deeper JSON is rejected before anything recurses into it; schemas and configurations of real programs have less than 50 levels. */
export const maxJsonDepth: number = 512;

const [quote, backslash, openBracket, closeBracket, openBrace, closeBrace] = [0x22, 0x5c, 0x5b, 0x5d, 0x7b, 0x7d];

/** Maximum number of brackets that are open at once, outside strings, in a JSON text or its UTF-8 bytes. It need not be valid. */
export function jsonDepth(json: string | Uint8Array): number {
  let depth = 0;
  let deepest = 0;
  let isString = false;
  for (let index = 0; index < json.length; index++) {
    const code = typeof json === 'string' ? json.charCodeAt(index) : json[index];
    if (isString && code === backslash) index++;
    else if (code === quote) isString = !isString;
    else if (isString) continue;
    else if (code === openBracket || code === openBrace) deepest = Math.max(deepest, ++depth);
    else if (code === closeBracket || code === closeBrace) depth--;
  }
  return deepest;
}
