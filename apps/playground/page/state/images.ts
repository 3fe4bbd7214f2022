/** Images of the user that become part of a message. */
import { maxFileBytes, readImageHeader } from '@winnow/vision';
import { dataUrlOf } from '../backend/data-url.js';
import type { Attachment, ImageAttachment } from './messages.js';

/**
 * Larger files are drawn smaller: every request contains all images of its conversation, and by default a server takes
 * 4 MiB.
 */
const maxBytes = 1_000_000;
/** Of the images of a conversation, which the browser stores with it. */
const maxConversationBytes = 8_000_000;

/** Draws an image as a smaller JPEG. */
export type DrawSmaller = (file: File) => Promise<Blob>;

/** @throws {Error} for a file that is no image, or too large */
export async function readImage(file: File, drawSmaller: DrawSmaller): Promise<ImageAttachment> {
  const { name, size } = file;
  if (size > maxFileBytes) throw new Error(`${name}: ${tooLarge(maxFileBytes, size)}`);
  const bytes = new Uint8Array(await file.arrayBuffer());
  const { format } = readImageHeader(bytes, { name });
  if (size <= maxBytes) return { name, sizeBytes: size, image: dataUrlOf(bytes, `image/${format}`) };
  const drawn = new Uint8Array(await (await drawSmaller(file)).arrayBuffer());
  return { name, sizeBytes: drawn.length, image: dataUrlOf(drawn, 'image/jpeg') };
}

/** @throws {Error} when a conversation has more images than the browser stores */
export function checkImageBytes(name: string, attachments: readonly Attachment[]): void {
  const sizes = attachments.map((attachment) => ('image' in attachment ? attachment.sizeBytes : 0));
  const total = sizes.reduce((sum, size) => sum + size, 0);
  if (total <= maxConversationBytes) return;
  throw new Error(`${name}: ${tooLarge(maxConversationBytes, total)} of images in one conversation; start a new one`);
}

function tooLarge(limit: number, size: number): string {
  return `expected at most ${(limit / 1e6).toFixed(0)} MB, got ${(size / 1e6).toFixed(1)} MB`;
}
