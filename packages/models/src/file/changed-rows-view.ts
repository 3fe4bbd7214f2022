/** A lazy view of a stored tensor whose decoded rows are modified. */
import type { StoredTensor } from '@winnow/bytes';
import { decoder, numElements } from '@winnow/tensor';

/**
 * The rows of `stored` as f32, modified by `change`. A read decodes only the rows that it covers, and holds them in addition to
 * its target.
 * @param change modifies decoded rows in place; the first one is row `begin` of the tensor
 */
export function changedRowsView(
  stored: StoredTensor,
  change: (rows: Float32Array, begin: number) => void,
): StoredTensor {
  const numRows = stored.shape[0] as number;
  const numColumns = numElements(stored.shape) / numRows;
  const [rowBytes, storedRowBytes] = [4 * numColumns, stored.sizeBytes / numRows];
  const decode = decoder(stored.dtype);
  return {
    name: stored.name,
    dtype: 'f32',
    shape: stored.shape,
    sizeBytes: numRows * rowBytes,
    async read(target, { byteOffset = 0, ...options } = {}) {
      const begin = Math.floor(byteOffset / rowBytes);
      const end = Math.ceil((byteOffset + target.length) / rowBytes);
      const bytes = new Uint8Array((end - begin) * storedRowBytes);
      await stored.read(bytes, { ...options, byteOffset: begin * storedRowBytes });
      const rows = new Float32Array((end - begin) * numColumns);
      decode(bytes, 0, rows, 0, rows.length);
      change(rows, begin);
      target.set(new Uint8Array(rows.buffer, byteOffset - begin * rowBytes, target.length));
    },
  };
}
