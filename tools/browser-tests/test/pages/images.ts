/** Runs in the browser: the pixels of images. */
import { decodeImage } from '@winnow/vision/browser';

/** A refusal, or the size and SHA-256 of the RGB values. */
export type DecodedImage = { readonly width: number; readonly height: number; readonly sha256: string } | string;

export interface ImagesPage extends Record<string, (input: never) => Promise<unknown>> {
  /** @param url of a file */
  decode(url: string): Promise<DecodedImage>;
}

const api: ImagesPage = {
  async decode(url) {
    const file = new Uint8Array(await (await fetch(url)).arrayBuffer());
    try {
      const { width, height, data } = await decodeImage(file, { name: 'picture' });
      const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', data.slice()));
      return { width, height, sha256: Array.from(hash, (byte) => byte.toString(16).padStart(2, '0')).join('') };
    } catch (error) {
      return (error as Error).message;
    }
  },
};
Object.assign(globalThis, { api });
