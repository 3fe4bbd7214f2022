/** Large images, drawn by the browser. */

/** Pixels of the longer edge of what is drawn. No supported model looks at more. */
const maxEdge = 2048;

/**
 * A JPEG on white, with the orientation of a photo applied.
 * @throws {Error} for a file that the browser cannot read
 */
export async function drawSmaller(file: File): Promise<Blob> {
  const bitmap = await createImageBitmap(file).catch((cause: unknown) => {
    throw new Error(`${file.name}: the browser cannot read this image`, { cause });
  });
  const scale = Math.min(1, maxEdge / Math.max(bitmap.width, bitmap.height));
  const size = (pixels: number): number => Math.max(1, Math.round(scale * pixels));
  const canvas = new OffscreenCanvas(size(bitmap.width), size(bitmap.height));
  const context = canvas.getContext('2d') as OffscreenCanvasRenderingContext2D;
  context.fillStyle = 'white';
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.imageSmoothingQuality = 'high';
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  return canvas.convertToBlob({ type: 'image/jpeg', quality: 0.85 });
}
