/** Keys of pages: hashes that are chained, so that each names all tokens up to the end of its page. */
import { ArgumentError } from '@winnow/tensor';
import type { SessionKey } from './prompt-cache.js';

/** Of Web Crypto. */
interface Subtle {
  digest(algorithm: string, data: Uint8Array): Promise<ArrayBuffer>;
}

const digestBytes = 32;

export interface PageKeyOptions {
  /** What the contents depend on besides the tokens: weights, dtypes of the cache, attention policy. */
  readonly sessionKey: SessionKey;
  /** Sequences of different salts have different keys. */
  readonly salt: string;
  readonly blockSize: number;
}

/**
 * The key of each whole page of `tokens`: `key[i] = SHA-256(key[i - 1] | tokens of page i)`, in hexadecimal digits, where
 * `key[-1]` is the hash of the options. Keys are computed as they are requested.
 * @throws {ArgumentError} on a host without Web Crypto
 */
export async function* pageKeys(
  tokens: Int32Array,
  { sessionKey, salt, blockSize }: PageKeyOptions,
): AsyncGenerator<string, void, void> {
  const { subtle } = (globalThis as { readonly crypto?: { readonly subtle?: Subtle } }).crypto ?? {};
  if (subtle === undefined) {
    throw new ArgumentError({ argument: 'promptCache', expected: 'a host with Web Crypto', actual: 'one without' });
  }
  const { modelHash, options } = sessionKey;
  const start = new TextEncoder().encode(JSON.stringify(['winnow page 1', modelHash, options, salt]));
  let previous = new Uint8Array(await subtle.digest('SHA-256', start));
  const link = new Uint8Array(digestBytes + blockSize * Int32Array.BYTES_PER_ELEMENT);
  for (let begin = 0; begin + blockSize <= tokens.length; begin += blockSize) {
    link.set(previous);
    link.set(new Uint8Array(tokens.slice(begin, begin + blockSize).buffer), digestBytes);
    previous = new Uint8Array(await subtle.digest('SHA-256', link));
    yield Array.from(previous, (byte) => byte.toString(16).padStart(2, '0')).join('');
  }
}
