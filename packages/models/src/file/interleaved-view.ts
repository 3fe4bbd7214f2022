/** Matrices with their rows interleaved. */
import type { StoredTensor } from '@winnow/bytes';

/** Maximum number of bytes of each matrix that are read at a time. */
const pieceBytes = 4 * 1024 * 1024;

/**
 * M matrices `[F, E]` of the same shape and dtype as `[F, M, E]`. A sequential read of the view reads each matrix
 * sequentially.
 * @param parts the M matrices
 */
export function interleavedView(name: string, parts: readonly StoredTensor[]): StoredTensor {
  const [{ dtype, shape, sizeBytes }] = parts as readonly [StoredTensor];
  const [numRows, width] = shape as unknown as [number, number];
  const rowBytes = sizeBytes / Math.max(1, numRows);
  const allBytes = rowBytes * parts.length; // one row of every matrix
  const pieceRows = Math.max(1, Math.floor(pieceBytes / Math.max(1, rowBytes)));
  return {
    name,
    dtype,
    shape: [numRows, parts.length, width],
    sizeBytes: sizeBytes * parts.length,
    async read(target, { byteOffset = 0, ...options } = {}) {
      const endByte = byteOffset + target.length;
      const last = Math.ceil(endByte / allBytes);
      for (let begin = Math.floor(byteOffset / allBytes); begin < last; begin += pieceRows) {
        const piece = new Uint8Array(Math.min(pieceRows, last - begin) * rowBytes);
        for (const [index, part] of parts.entries()) {
          await part.read(piece, { ...options, byteOffset: begin * rowBytes });
          for (let at = 0; at < piece.length; at += rowBytes) {
            // the target may end within the row
            const to = (begin + at / rowBytes) * allBytes + index * rowBytes;
            const low = Math.max(to, byteOffset);
            const high = Math.min(to + rowBytes, endByte);
            if (low < high) target.set(piece.subarray(at + low - to, at + high - to), low - byteOffset);
          }
        }
      }
    },
  };
}
