/**
 * The byte-to-unicode mapping of GPT-2's byte-level vocabularies: each byte is one printable character. Printable
 * Latin-1 bytes map to themselves, the others to U+0100 and up, in order. Source: GPT-2's encoder.py,
 * https://github.com/openai/gpt-2/blob/9b63575ef42771a015060c964af2c3da4cf7c8ab/src/encoder.py
 */
interface ByteCharacters {
  /** Character of each byte. */
  readonly characters: readonly string[];
  /** Byte of each code unit below 0x180, or -1. */
  readonly bytes: Int16Array;
}

let tables: ByteCharacters | undefined;

function byteCharacters(): ByteCharacters {
  if (tables !== undefined) return tables;
  const characters: string[] = [];
  const bytes = new Int16Array(0x180).fill(-1);
  let substitutes = 0;
  for (let byte = 0; byte < 256; byte++) {
    const printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    const unit = printable ? byte : 0x100 + substitutes++;
    characters.push(String.fromCharCode(unit));
    bytes[unit] = byte;
  }
  tables = { characters, bytes };
  return tables;
}

/** The printable character of each of the 256 bytes. */
export function byteLevelCharacters(): readonly string[] {
  return byteCharacters().characters;
}

/** The byte-level spelling of up to `longLength` characters: one character for each byte of their UTF-8. */
export function byteLevelEncode(text: string): string {
  const { characters } = byteCharacters();
  return Array.from(new TextEncoder().encode(text), (byte) => characters[byte]!).join('');
}

/** The bytes behind a byte-level spelling; characters outside the mapping yield their own UTF-8 bytes. */
export function byteLevelDecode(spelling: string): Uint8Array {
  const { bytes } = byteCharacters();
  const plain = new Uint8Array(spelling.length);
  for (let index = 0; index < spelling.length; index++) {
    const unit = spelling.charCodeAt(index);
    const byte = unit < bytes.length ? bytes[unit]! : -1;
    if (byte < 0) return decodeMixed(spelling, bytes);
    plain[index] = byte;
  }
  return plain;
}

function decodeMixed(spelling: string, bytes: Int16Array): Uint8Array {
  const encoder = new TextEncoder();
  const out: number[] = [];
  for (const character of spelling) {
    const unit = character.codePointAt(0)!;
    const byte = unit < bytes.length ? bytes[unit]! : -1;
    if (byte >= 0) out.push(byte);
    else out.push(...encoder.encode(character));
  }
  return Uint8Array.from(out);
}

/** The byte of a `<0xAB>` spelling, or -1. */
export function hexTokenByte(spelling: string): number {
  const match = /^<0x([0-9A-Fa-f]{2})>$/.exec(spelling);
  return match === null ? -1 : Number.parseInt(match[1]!, 16);
}

/** The spelling of a byte token: `<0x0A>`. */
export function hexTokenText(byte: number): string {
  return `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`;
}
