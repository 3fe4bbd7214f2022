/**
 * A frame, the place of a page in a page file, little-endian:
 *
 *   0  magic "WKVP"   4  version   8  bytes of the page   12  slots per page   16  page id (64 bit)
 *  24  generation (64 bit)   32  checksum of the page (64 bit)   40  checksum of the header (64 bit)   48  zeros
 *  64  position of each slot (32 bit each), then the page, then zeros up to a multiple of 512
 *
 * The header's checksum covers `[0, 40)`, `[48, 64)` and the positions, so that the positions of a damaged page are
 * known.
 */
import { checksum64 } from '../checksum.js';

const magic = 0x50564b57;
const version = 1;
const headerBytes = 64;
const alignment = 512;

export interface PageFrameShape {
  readonly pageBytes: number;
  readonly blockSize: number;
}

export interface FrameHeader {
  readonly pageId: number;
  readonly generation: number;
  readonly positions: Int32Array;
}

/** State of a frame. `header` is set where it can be trusted. */
export type FrameState =
  | { readonly kind: 'empty' }
  | { readonly kind: 'valid'; readonly header: FrameHeader }
  | { readonly kind: 'damaged'; readonly reason: string; readonly header: FrameHeader | undefined }
  | { readonly kind: 'foreign'; readonly reason: string };

export function pageOffset(blockSize: number): number {
  return headerBytes + 4 * blockSize;
}

export function frameBytesOf({ pageBytes, blockSize }: PageFrameShape): number {
  return Math.ceil((pageOffset(blockSize) + pageBytes) / alignment) * alignment;
}

/** Writes header and checksums around a page that is in `frame` already. */
export function sealFrame(frame: Uint8Array, { pageBytes, blockSize }: PageFrameShape, header: FrameHeader): void {
  const { pageId, generation, positions } = header;
  const words = new Uint32Array(frame.buffer, frame.byteOffset, headerBytes / 4);
  words.set([magic, version, pageBytes, blockSize, pageId >>> 0, pageId / 2 ** 32]);
  words[6] = generation >>> 0;
  words[7] = generation / 2 ** 32;
  const offset = pageOffset(blockSize);
  new Int32Array(frame.buffer, frame.byteOffset + headerBytes, blockSize).set(positions);
  const sum = new Uint32Array(2);
  checksum64(frame.subarray(offset, offset + pageBytes), seedOf(words), sum);
  words.set(sum, 8);
  words.fill(0, 10);
  checksum64(frame.subarray(0, offset), 0, sum);
  words.set(sum, 10);
}

/**
 * Checks a frame.
 * @param page its page, where that is not in `frame` behind the header
 */
export function openFrame(
  frame: Uint8Array,
  { pageBytes, blockSize }: PageFrameShape,
  page: Uint8Array = frame.subarray(pageOffset(blockSize), pageOffset(blockSize) + pageBytes),
): FrameState {
  const words = new Uint32Array(frame.buffer, frame.byteOffset, headerBytes / 4);
  const offset = pageOffset(blockSize);
  if (words.every((word) => word === 0)) return { kind: 'empty' };
  if (words[0] !== magic) return damaged('the header is not one of a page');
  if (words[1] !== version) return { kind: 'foreign', reason: `version ${words[1]}, expected ${version}` };
  if (words[2] !== pageBytes || words[3] !== blockSize) {
    const expected = `${pageBytes} bytes and ${blockSize} slots`;
    return { kind: 'foreign', reason: `pages of ${words[2]} bytes and ${words[3]} slots, expected ${expected}` };
  }
  const stored = words.slice(8, 12);
  const sum = new Uint32Array(2);
  words.fill(0, 10, 12);
  checksum64(frame.subarray(0, offset), 0, sum);
  words.set(stored.subarray(2), 10);
  if (sum[0] !== stored[2] || sum[1] !== stored[3]) return damaged('the checksum of the header is wrong');
  const header: FrameHeader = {
    pageId: words[4] + words[5] * 2 ** 32,
    generation: words[6] + words[7] * 2 ** 32,
    positions: new Int32Array(frame.buffer, frame.byteOffset + headerBytes, blockSize).slice(),
  };
  checksum64(page, seedOf(words), sum);
  if (sum[0] === stored[0] && sum[1] === stored[1]) return { kind: 'valid', header };
  return damaged('the checksum of the page is wrong', header);
}

/** A page of another id or generation must not pass for this one. */
function seedOf(words: Uint32Array): number {
  return words[4] ^ Math.imul(words[6], 0x9e3779b1);
}

function damaged(reason: string, header?: FrameHeader): FrameState {
  return { kind: 'damaged', reason, header };
}
