/** Reads colors of transparent pixels with WebGL, which does not premultiply them by alpha. */

export interface Bitmap {
  readonly width: number;
  readonly height: number;
  close(): void;
}

export interface BitmapOptions {
  readonly premultiplyAlpha: 'none';
  readonly colorSpaceConversion: 'none';
}

/** The part of `WebGL2RenderingContext` that is used. */
export interface WebGl {
  readonly TEXTURE_2D: number;
  readonly FRAMEBUFFER: number;
  readonly COLOR_ATTACHMENT0: number;
  readonly RGBA: number;
  readonly UNSIGNED_BYTE: number;
  createTexture(): object;
  createFramebuffer(): object;
  bindTexture(target: number, texture: object): void;
  bindFramebuffer(target: number, framebuffer: object): void;
  texImage2D(target: number, level: number, internal: number, format: number, type: number, source: Bitmap): void;
  framebufferTexture2D(target: number, attachment: number, texture: number, of: object, level: number): void;
  readPixels(
    ...area: [left: number, top: number, width: number, height: number, format: number, type: number, to: Uint8Array]
  ): void;
  getExtension(name: 'WEBGL_lose_context'): { loseContext(): void } | null;
}

/** Texture size that every WebGL 2 implementation supports. */
const maxTileSize = 2048;

/**
 * The pixels `[height, width, 4]` of a bitmap that was decoded with `premultiplyAlpha: 'none'`.
 * @param crop creates a bitmap of a part of the bitmap
 */
export async function readUnpremultiplied(
  { width, height }: Bitmap,
  gl: WebGl,
  crop: (left: number, top: number, width: number, height: number) => Promise<Bitmap>,
): Promise<Uint8Array> {
  const pixels = new Uint8Array(4 * width * height);
  const texture = gl.createTexture();
  gl.bindTexture(gl.TEXTURE_2D, texture);
  gl.bindFramebuffer(gl.FRAMEBUFFER, gl.createFramebuffer());
  gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, texture, 0);
  for (let top = 0; top < height; top += maxTileSize) {
    for (let left = 0; left < width; left += maxTileSize) {
      const tile = await crop(left, top, Math.min(maxTileSize, width - left), Math.min(maxTileSize, height - top));
      const rows = new Uint8Array(4 * tile.width * tile.height);
      gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, gl.RGBA, gl.UNSIGNED_BYTE, tile);
      gl.readPixels(0, 0, tile.width, tile.height, gl.RGBA, gl.UNSIGNED_BYTE, rows);
      for (let row = 0; row < tile.height; row++) {
        const from = 4 * row * tile.width;
        pixels.set(rows.subarray(from, from + 4 * tile.width), 4 * ((top + row) * width + left));
      }
      tile.close();
    }
  }
  gl.getExtension('WEBGL_lose_context')?.loseContext(); // browsers keep few contexts
  return pixels;
}
