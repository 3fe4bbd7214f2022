/** Reads format and size of an image file from its header, so that nothing too large is ever decoded. */
import { CapacityError, FormatError } from '@winnow/tensor';
import { checkSize, maxFileBytes, maxPixels, type DecodeOptions, type ImageFormat } from './image.js';

export interface ImageHeader {
  readonly format: ImageFormat;
  /** Width in pixels as stored, before the orientation of a photo is applied. */
  readonly width: number;
  readonly height: number;
}

/**
 * Reads the header of a PNG, JPEG or WebP file.
 * @throws {FormatError} for another format and a broken header
 * @throws {CapacityError} for a file or an image beyond the limits
 */
export function readImageHeader(bytes: Uint8Array, options: DecodeOptions = {}): ImageHeader {
  const { name = 'image', maxPixels: limit = maxPixels } = options;
  if (bytes.length > maxFileBytes) {
    const fields = { needed: bytes.length, available: maxFileBytes, unit: 'bytes' } as const;
    throw new CapacityError({ resource: name, source: name, ...fields });
  }
  const header = parse(bytes, name);
  const { width, height } = header;
  if (width === 0 || height === 0) throw broken(name, `expected a size, got ${width} x ${height}`);
  checkSize(name, width, height, limit);
  return header;
}

function parse(bytes: Uint8Array, name: string): ImageHeader {
  const text = (begin: number, end: number): string => String.fromCharCode(...bytes.subarray(begin, end));
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  try {
    if (text(0, 8) === '\x89PNG\r\n\x1a\n') {
      return { format: 'png', width: view.getUint32(16), height: view.getUint32(20) };
    }
    if (text(0, 3) === '\xff\xd8\xff') return jpegHeader(view, name);
    if (text(0, 4) === 'RIFF' && text(8, 12) === 'WEBP') return webpHeader(view, text(12, 16), name);
  } catch (cause) {
    if (cause instanceof RangeError) throw broken(name, `the file ends after ${bytes.length} bytes`, cause);
    throw cause;
  }
  const begin = Array.from(bytes.subarray(0, 8), (byte) => byte.toString(16).padStart(2, '0')).join(' ');
  const message = `expected a PNG, JPEG or WebP file, got a file that begins with ${begin || 'nothing'}`;
  throw new FormatError({ source: name, field: 'format', message });
}

/** ITU T.81 B.1.1: segments of a marker and a length, up to the frame header (C0 to CF except C4, C8, CC). */
function jpegHeader(view: DataView, name: string): ImageHeader {
  let at = 2;
  for (;;) {
    if (view.getUint8(at) !== 0xff) throw broken(name, `expected a marker at byte ${at}`);
    const marker = view.getUint8(at + 1);
    if (marker === 0xff) {
      at++; // fill bytes
      continue;
    }
    const isFrame = marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc;
    if (isFrame) return { format: 'jpeg', width: view.getUint16(at + 7), height: view.getUint16(at + 5) };
    const length = view.getUint16(at + 2);
    if (length < 2) throw broken(name, `expected a segment at byte ${at}`);
    at += 2 + length;
  }
}

/** RFC 9649: the first chunk is lossy (VP8), lossless (VP8L) or extended (VP8X). */
function webpHeader(view: DataView, chunk: string, name: string): ImageHeader {
  if (chunk === 'VP8 ') {
    const [width, height] = [view.getUint16(26, true) & 0x3fff, view.getUint16(28, true) & 0x3fff];
    return { format: 'webp', width, height };
  }
  if (chunk === 'VP8L') {
    const bits = view.getUint32(21, true);
    return { format: 'webp', width: (bits & 0x3fff) + 1, height: ((bits >>> 14) & 0x3fff) + 1 };
  }
  if (chunk === 'VP8X') {
    if ((view.getUint8(20) & 2) !== 0) {
      throw new FormatError({ source: name, field: 'format', message: 'expected a single image, got an animation' });
    }
    const at = (offset: number): number => view.getUint16(offset, true) + view.getUint8(offset + 2) * 65536 + 1;
    return { format: 'webp', width: at(24), height: at(27) };
  }
  throw broken(name, `expected a chunk VP8, VP8L or VP8X, got ${JSON.stringify(chunk)}`);
}

function broken(name: string, message: string, cause?: unknown): FormatError {
  return new FormatError({ source: name, field: 'header', message }, { cause });
}
