/**
 * Authenticates session files by HMAC-SHA-256. Web Crypto hashes whole buffers only, so the MAC covers the SHA-256 digests
 * of pieces: 32 bytes of memory for each MiB of the file. See docs/formats/session.md.
 */
import type { ByteSource, ReadOptions } from '@winnow/bytes';
import { ArgumentError, FormatError } from '@winnow/tensor';
import { Limiter } from '../limiter.js';
import { checksumBytes, macBytes, macPieceBytes, macSectionName } from './layout.js';
import type { SessionSection } from './writer.js';

/** The part of Web Crypto that is used; the key is opaque. */
interface Subtle {
  digest(algorithm: string, data: Uint8Array): Promise<ArrayBuffer>;
  importKey(format: 'raw', key: Uint8Array, algorithm: object, extractable: false, uses: string[]): Promise<object>;
  sign(algorithm: string, key: object, data: Uint8Array): Promise<ArrayBuffer>;
  verify(algorithm: string, key: object, signature: Uint8Array, data: Uint8Array): Promise<boolean>;
}

const label = new TextEncoder().encode('winnow session\0\0');
/** Shorter keys can be guessed. */
const minKeyBytes = 16;
const digestBytes = 32;
/** The last section of an authenticated file: the MAC and its checksum. */
const tailBytes = macBytes + checksumBytes;

function subtleCrypto(): Subtle {
  const { subtle } = (globalThis as { readonly crypto?: { readonly subtle?: unknown } }).crypto ?? {};
  if (subtle !== undefined) return subtle as Subtle;
  const expected = 'a host with Web Crypto (in browsers: a page served over HTTPS)';
  throw new ArgumentError({ argument: 'key', expected, actual: 'one without' });
}

/** @throws {ArgumentError} */
async function importKey(subtle: Subtle, key: Uint8Array): Promise<object> {
  if (!(key instanceof Uint8Array) || key.byteLength < minKeyBytes) {
    const actual = key instanceof Uint8Array ? `${key.byteLength} bytes` : typeof key;
    throw new ArgumentError({ argument: 'key', expected: `a Uint8Array of at least ${minKeyBytes} bytes`, actual });
  }
  return subtle.importKey('raw', key, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign', 'verify']);
}

/** What the MAC is computed over: a label, the number of bytes, the digests of the pieces. */
function messageOf(numBytes: number, digests: readonly Uint8Array[]): Uint8Array {
  const message = new Uint8Array(label.byteLength + 8 + digests.length * digestBytes);
  message.set(label);
  new DataView(message.buffer).setBigUint64(label.byteLength, BigInt(numBytes), true);
  for (const [index, digest] of digests.entries()) message.set(digest, label.byteLength + 8 + index * digestBytes);
  return message;
}

async function digestOf(subtle: Subtle, piece: Uint8Array): Promise<Uint8Array> {
  return new Uint8Array(await subtle.digest('SHA-256', piece));
}

/** Computes the MAC of a file while it is written. */
export class SessionMac {
  readonly #subtle: Subtle;
  readonly #key: object;
  readonly #piece: Uint8Array = new Uint8Array(macPieceBytes);
  readonly #digests: Uint8Array[] = [];
  #numBytes = 0;

  private constructor(subtle: Subtle, key: object) {
    this.#subtle = subtle;
    this.#key = key;
  }

  /** @throws {ArgumentError} for a short key, and without Web Crypto */
  static async create(key: Uint8Array): Promise<SessionMac> {
    const subtle = subtleCrypto();
    return new SessionMac(subtle, await importKey(subtle, key));
  }

  async update(bytes: Uint8Array): Promise<void> {
    for (let begin = 0; begin < bytes.byteLength;) {
      const at = this.#numBytes % macPieceBytes;
      const count = Math.min(macPieceBytes - at, bytes.byteLength - begin);
      this.#piece.set(bytes.subarray(begin, begin + count), at);
      begin += count;
      this.#numBytes += count;
      if (at + count === macPieceBytes) this.#digests.push(await digestOf(this.#subtle, this.#piece));
    }
  }

  /** The last section of the file; it is read when all bytes before it have been passed to `update`. */
  readonly section: SessionSection = {
    name: macSectionName,
    sizeBytes: macBytes,
    read: async (_byteOffset, target) => {
      const rest = this.#piece.subarray(0, this.#numBytes % macPieceBytes);
      const last = rest.byteLength === 0 ? [] : [await digestOf(this.#subtle, rest)];
      const message = messageOf(this.#numBytes, [...this.#digests, ...last]);
      target.set(new Uint8Array(await this.#subtle.sign('HMAC', this.#key, message)));
    },
  };
}

/** A session file whose MAC was verified. */
export interface VerifiedFile {
  /** Yields verified bytes only, also if the file is changed while it is open. */
  readonly source: ByteSource;
  /** In hexadecimal digits: the same for the same contents and key alone. */
  readonly mac: string;
}

/**
 * Reads the whole file, one piece in memory at a time.
 * @returns undefined when the MAC is another one
 * @throws {ArgumentError} for a short key, and without Web Crypto
 */
export async function verifySource(
  source: ByteSource,
  key: Uint8Array,
  options: ReadOptions,
): Promise<VerifiedFile | undefined> {
  const subtle = subtleCrypto();
  const imported = await importKey(subtle, key);
  const numBytes = source.sizeBytes - tailBytes;
  if (numBytes < 0) return undefined;
  const tail = new Uint8Array(tailBytes);
  await source.read(numBytes, tail, options);
  const digests: Uint8Array[] = [];
  const buffer = new Uint8Array(Math.min(macPieceBytes, numBytes));
  for (let begin = 0; begin < numBytes; begin += macPieceBytes) {
    const piece = buffer.subarray(0, Math.min(macPieceBytes, numBytes - begin));
    await source.read(begin, piece, options);
    digests.push(await digestOf(subtle, piece));
  }
  const mac = tail.subarray(0, macBytes);
  if (!(await subtle.verify('HMAC', imported, mac, messageOf(numBytes, digests)))) return undefined;
  const digits = Array.from(mac, (byte) => byte.toString(16).padStart(2, '0')).join('');
  return { source: new VerifiedSource(source, subtle, digests, tail), mac: digits };
}

/** Compares each piece with its verified digest when it is read again. */
class VerifiedSource implements ByteSource {
  readonly name: string;
  readonly sizeBytes: number;
  readonly #source: ByteSource;
  readonly #subtle: Subtle;
  readonly #digests: readonly Uint8Array[];
  readonly #tail: Uint8Array;
  readonly #buffer: Uint8Array;
  /** Index of the piece in the buffer. */
  #buffered = -1;
  readonly #turns = new Limiter(1);

  constructor(source: ByteSource, subtle: Subtle, digests: readonly Uint8Array[], tail: Uint8Array) {
    this.name = source.name;
    this.sizeBytes = source.sizeBytes;
    this.#source = source;
    this.#subtle = subtle;
    this.#digests = digests;
    this.#tail = tail;
    this.#buffer = new Uint8Array(Math.min(macPieceBytes, source.sizeBytes - tailBytes));
  }

  /** Reads are serialized, since they share the buffer. */
  read(byteOffset: number, target: Uint8Array, options: ReadOptions = {}): Promise<void> {
    return this.#turns.run(async () => {
      const numVerified = this.sizeBytes - tailBytes;
      const end = byteOffset + target.byteLength;
      for (let at = byteOffset; at < end;) {
        const piece = at < numVerified ? await this.#pieceAt(at, options) : this.#tail;
        const begin = at < numVerified ? at % macPieceBytes : at - numVerified;
        const count = Math.min(piece.byteLength - begin, end - at);
        target.set(piece.subarray(begin, begin + count), at - byteOffset);
        at += count;
      }
    });
  }

  close(): Promise<void> {
    return this.#source.close();
  }

  async #pieceAt(byteOffset: number, options: ReadOptions): Promise<Uint8Array> {
    const index = Math.floor(byteOffset / macPieceBytes);
    const begin = index * macPieceBytes;
    const piece = this.#buffer.subarray(0, Math.min(macPieceBytes, this.sizeBytes - tailBytes - begin));
    if (this.#buffered === index) return piece;
    this.#buffered = -1;
    await this.#source.read(begin, piece, options);
    const digest = await digestOf(this.#subtle, piece);
    if (digest.some((byte, i) => byte !== this.#digests[index][i])) {
      const message = 'expected the bytes that were verified, got others: the file was changed while it was read';
      throw new FormatError({ source: this.name, byteOffset: begin, field: 'mac', message });
    }
    this.#buffered = index;
    return piece;
  }
}
