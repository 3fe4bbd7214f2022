/** Files as `data:` URLs, which are stored, shown and sent as they are. */

/** Arguments of a function have a limit. */
const chunkBytes = 8192;

export function dataUrlOf(bytes: Uint8Array, type: string): string {
  let text = '';
  for (let at = 0; at < bytes.length; at += chunkBytes) {
    text += String.fromCharCode(...bytes.subarray(at, at + chunkBytes));
  }
  return `data:${type};base64,${btoa(text)}`;
}

export function bytesOfDataUrl(url: string): Uint8Array {
  return Uint8Array.from(atob(url.slice(url.indexOf(',') + 1)), (character) => character.charCodeAt(0));
}
