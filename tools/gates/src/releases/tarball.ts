/** Reads names and contents of the files of an npm archive (gzip'd ustar with the folder `package/`). */
import { gunzipSync } from 'node:zlib';

const blockSize = 512;

export function listTarball(archive: Uint8Array): Map<string, Uint8Array> {
  const bytes = gunzipSync(archive);
  const files = new Map<string, Uint8Array>();
  const text = (from: number, length: number): string =>
    new TextDecoder().decode(bytes.subarray(from, from + length)).replace(/\0.*$/s, '');
  let longName: string | undefined;
  for (let at = 0; at + blockSize <= bytes.length && bytes[at] !== 0;) {
    const sizeBytes = Number.parseInt(text(at + 124, 12).trim() || '0', 8);
    const kind = String.fromCharCode(bytes[at + 156] ?? 0);
    const prefix = text(at + 345, 155);
    const name = longName ?? (prefix === '' ? '' : `${prefix}/`) + text(at, 100);
    const content = bytes.subarray(at + blockSize, at + blockSize + sizeBytes);
    longName = undefined;
    if (kind === 'x') longName = /\d+ path=(.*)\n/.exec(new TextDecoder().decode(content))?.[1];
    else if (kind === 'L') longName = new TextDecoder().decode(content).replace(/\0.*$/s, '');
    else if (kind === '0' || kind === '\0') files.set(name.replace(/^package\//, ''), content);
    at += blockSize + Math.ceil(sizeBytes / blockSize) * blockSize;
  }
  return files;
}
