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
