/** Entries of a ZIP archive that are stored without compression, as PyTorch writes them. Nothing is extracted. */
import { readBytes, type ByteSource } from '@winnow/bytes';
import { FormatError } from '@winnow/tensor';
import { MAX_ARCHIVE_ENTRIES } from './limits.js';

/** A range of the archive. */
export interface ZipEntry {
  readonly name: string;
  readonly byteOffset: number;
  readonly sizeBytes: number;
}

const endBytes = 22;
const centralBytes = 46;
const localBytes = 30;

/** Names are short; this many bytes per entry hold a name, an extra field and a comment. */
const maxEntryBytes = 1024;

/**
 * The entries by name.
 * @throws {FormatError} for a file without the directory of an archive, with more than one part, or with compressed entries
 */
export async function readZipEntries(
  source: ByteSource,
  options: { readonly signal?: AbortSignal },
): Promise<Map<string, ZipEntry>> {
  const { numEntries, byteOffset, sizeBytes } = await readEnd(source, options);
  const bytes = await readBytes(source, byteOffset, sizeBytes, options);
  const view = new DataView(bytes.buffer);
  const entries = new Map<string, ZipEntry>();
  let at = 0;
  for (let index = 0; index < numEntries; index++) {
    const fail = (message: string): never => {
      throw new FormatError({ source: source.name, byteOffset: byteOffset + at, field: `entry ${index}`, message });
    };
    if (at + centralBytes > sizeBytes || view.getUint32(at, true) !== 0x02014b50)
      fail('expected an entry of a ZIP archive');
    const [nameBytes, extraBytes, commentBytes] = [28, 30, 32].map((field) => view.getUint16(at + field, true)) as [
      number,
      number,
      number,
    ];
    const end = at + centralBytes + nameBytes + extraBytes + commentBytes;
    if (end > sizeBytes) fail('expected a name inside the directory of the archive');
    if (view.getUint16(at + 10, true) !== 0) fail('expected an entry without compression');
    const stored = view.getUint32(at + 20, true);
    if (stored !== view.getUint32(at + 24, true)) fail('expected an entry that is as large as its content');
    const name = new TextDecoder().decode(bytes.subarray(at + centralBytes, at + centralBytes + nameBytes));
    if (entries.has(name)) fail(`expected names without duplicates, got ${JSON.stringify(name.slice(0, 60))} twice`);
    const begin = await dataOffset(source, view.getUint32(at + 42, true), options);
    if (begin === undefined || begin + stored > byteOffset)
      fail('expected content before the directory of the archive');
    entries.set(name, { name, byteOffset: begin as number, sizeBytes: stored });
    at = end;
  }
  return entries;
}

interface Directory {
  readonly numEntries: number;
  readonly byteOffset: number;
  readonly sizeBytes: number;
}

async function readEnd(source: ByteSource, options: { readonly signal?: AbortSignal }): Promise<Directory> {
  const { name, sizeBytes } = source;
  const byteOffset = Math.max(0, sizeBytes - endBytes);
  const fail = (message: string): never => {
    throw new FormatError({ source: name, byteOffset, field: 'end of the archive', message });
  };
  if (sizeBytes < endBytes) fail(`expected at least ${endBytes} bytes, got ${sizeBytes}`);
  const view = new DataView((await readBytes(source, byteOffset, endBytes, options)).buffer);
  if (view.getUint32(0, true) !== 0x06054b50)
    fail('expected a ZIP archive, as torch.save has written since PyTorch 1.6');
  const numEntries = view.getUint16(10, true);
  const directory = { numEntries, sizeBytes: view.getUint32(12, true), byteOffset: view.getUint32(16, true) };
  if (view.getUint16(8, true) !== numEntries) fail('expected an archive of one part');
  if (numEntries > MAX_ARCHIVE_ENTRIES) fail(`expected at most ${MAX_ARCHIVE_ENTRIES} entries, got ${numEntries}`);
  if (directory.byteOffset + directory.sizeBytes > byteOffset || directory.sizeBytes > numEntries * maxEntryBytes) {
    fail(`expected a directory before the end, got ${directory.sizeBytes} bytes at ${directory.byteOffset}`);
  }
  return directory;
}

/** Where the content of an entry starts; `undefined` without a header there. */
async function dataOffset(
  source: ByteSource,
  byteOffset: number,
  options: { readonly signal?: AbortSignal },
): Promise<number | undefined> {
  if (byteOffset + localBytes > source.sizeBytes) return undefined;
  const view = new DataView((await readBytes(source, byteOffset, localBytes, options)).buffer);
  if (view.getUint32(0, true) !== 0x04034b50) return undefined;
  return byteOffset + localBytes + view.getUint16(26, true) + view.getUint16(28, true);
}
