/** SHA-256 (FIPS 180-4), for checksums of small files, without a host API. */

/**
 * Fractional parts of the cube roots of the first 64 primes, and of the square roots of the first 8, as 32-bit words.
 */
function tables(): { readonly k: Uint32Array; readonly h: Uint32Array } {
  const k = new Uint32Array(64);
  const h = new Uint32Array(8);
  for (let n = 2, count = 0; count < 64; n++) {
    let isPrime = true;
    for (let d = 2; d * d <= n; d++) if (n % d === 0) isPrime = false;
    if (!isPrime) continue;
    if (count < 8) h[count] = fraction(n ** (1 / 2));
    k[count++] = fraction(n ** (1 / 3));
  }
  return { k, h };
}

const fraction = (x: number): number => Math.floor((x - Math.floor(x)) * 2 ** 32);
const rotate = (x: number, bits: number): number => (x >>> bits) | (x << (32 - bits));

/** The digest of consecutive pieces as 64 hexadecimal digits. */
export function sha256(pieces: Iterable<Uint8Array>): string {
  const { k, h } = tables();
  const w = new Int32Array(64);
  const block = new Uint8Array(64);
  const view = new DataView(block.buffer);
  let filled = 0;
  let numBytes = 0;
  const push = (piece: Uint8Array): void => {
    for (let at = 0; at < piece.length;) {
      const length = Math.min(64 - filled, piece.length - at);
      block.set(piece.subarray(at, at + length), filled);
      filled += length;
      at += length;
      if (filled < 64) return;
      for (let i = 0; i < 16; i++) w[i] = view.getInt32(i * 4);
      compress(w, k, h);
      filled = 0;
    }
  };
  for (const piece of pieces) {
    numBytes += piece.length;
    push(piece);
  }
  const end = new Uint8Array((filled < 56 ? 64 : 128) - filled);
  end[0] = 0x80;
  new DataView(end.buffer).setBigUint64(end.length - 8, BigInt(numBytes) * 8n);
  push(end);
  return Array.from(h, (word) => word.toString(16).padStart(8, '0')).join('');
}

function compress(w: Int32Array, k: Uint32Array, state: Uint32Array): void {
  for (let i = 16; i < 64; i++) {
    const s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ (w[i - 15] >>> 3);
    const s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ (w[i - 2] >>> 10);
    w[i] = (w[i - 16] + s0 + w[i - 7] + s1) | 0;
  }
  let [a, b, c, d, e, f, g, h] = state as unknown as number[];
  for (let i = 0; i < 64; i++) {
    const s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
    const t1 = (h + s1 + ((e & f) ^ (~e & g)) + k[i] + w[i]) | 0;
    const s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
    const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g;
    g = f;
    f = e;
    e = (d + t1) | 0;
    d = c;
    c = b;
    b = a;
    a = (t1 + t2) | 0;
  }
  for (const [i, word] of [a, b, c, d, e, f, g, h].entries()) state[i] += word;
}
