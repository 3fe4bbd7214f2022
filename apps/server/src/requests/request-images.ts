/** Images of requests: files in base64. Nothing is fetched, so that no request makes the server read other machines. */
import type { ChatMessage } from '@winnow/engine';
import { badRequest } from '../http/api-error.js';

/** @throws {ApiError} 400 for a URL that is not a file in base64 */
export function imageOfUrl(url: string, path: string): Uint8Array {
  const found = /^data:image\/[a-z0-9.+-]+;base64,/i.exec(url);
  if (found === null) throw badRequest(path, 'must be a data: URL with an image in base64', 'invalid_image_url');
  return imageOfBase64(url.slice(found[0].length), path);
}

/** @throws {ApiError} 400 for text that is not base64 */
export function imageOfBase64(text: string, path: string): Uint8Array {
  const isBase64 = text.length > 0 && text.length % 4 === 0 && /^[a-z0-9+/]+={0,2}$/i.test(text);
  if (!isBase64) throw badRequest(path, 'must be a file in base64', 'invalid_value');
  return new Uint8Array(Buffer.from(text, 'base64'));
}

/** The images of a message, which has no field for none. */
export function imagesField(images: readonly Uint8Array[]): Pick<ChatMessage, 'images'> {
  return images.length === 0 ? {} : { images };
}
