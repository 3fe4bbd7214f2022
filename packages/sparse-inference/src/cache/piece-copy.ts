/** How a lower tier stores a piece: unchanged, or in a narrower format that is converted back to the model's. */
import { canEncode, decoder, dtypeInfo, encoder, sizeOf, type DType } from '@winnow/tensor';

export interface PieceCopy {
  readonly sizeBytes: number;
  /** Whether the copy has the model's format. */
  readonly isSame: boolean;
  /** Encodes the piece that starts at `bytes[0]`. Returns false for non-finite values, which cannot be encoded. */
  encode(bytes: Uint8Array, out: Uint8Array, outOffset: number): boolean;
  /** Converts the copy to the model's format. */
  decode(copy: Uint8Array, copyOffset: number, out: Uint8Array, outOffset: number): void;
}

/** Values converted at a time: whole blocks of every format, small enough for the L1 cache. */
const chunkValues = 4096;
/** Scratch of one conversion. */
const values = new Float32Array(chunkValues);

const bitsOf = (dtype: DType): number => {
  const { blockBytes, blockSize } = dtypeInfo(dtype);
  return (blockBytes * 8) / blockSize;
};

/** A copy in `format` if that is narrower, has whole blocks, and is cheap to convert back (no search for scales). */
export function pieceCopy(dtype: DType, numValues: number, format: DType | 'same'): PieceCopy {
  const itemBytes = sizeOf(dtype, numValues);
  if (
    format === 'same' ||
    bitsOf(dtype) <= bitsOf(format) ||
    numValues % dtypeInfo(format).blockSize !== 0 ||
    dtypeInfo(dtype).blockSize > dtypeInfo(format).blockSize ||
    !canEncode(dtype)
  ) {
    return {
      sizeBytes: itemBytes,
      isSame: true,
      encode(bytes, out, outOffset) {
        out.set(bytes.length === itemBytes ? bytes : bytes.subarray(0, itemBytes), outOffset);
        return true;
      },
      decode(copy, copyOffset, out, outOffset) {
        out.set(copy.subarray(copyOffset, copyOffset + itemBytes), outOffset);
      },
    };
  }
  const fromModel = decoder(dtype);
  const fromCopy = decoder(format);
  const toModel = encoder(dtype);
  const toCopy = encoder(format);
  const modelChunkBytes = sizeOf(dtype, chunkValues);
  const copyChunkBytes = sizeOf(format, chunkValues);
  return {
    sizeBytes: sizeOf(format, numValues),
    isSame: false,
    encode(bytes, out, outOffset) {
      for (let done = 0, chunk = 0; done < numValues; done += chunkValues, chunk++) {
        const length = Math.min(chunkValues, numValues - done);
        fromModel(bytes, chunk * modelChunkBytes, values, 0, length);
        for (let i = 0; i < length; i++) if (!Number.isFinite(values[i])) return false;
        toCopy(values, 0, out, outOffset + chunk * copyChunkBytes, length);
      }
      return true;
    },
    decode(copy, copyOffset, out, outOffset) {
      for (let done = 0, chunk = 0; done < numValues; done += chunkValues, chunk++) {
        const length = Math.min(chunkValues, numValues - done);
        fromCopy(copy, copyOffset + chunk * copyChunkBytes, values, 0, length);
        toModel(values, 0, out, outOffset + chunk * modelChunkBytes, length);
      }
    },
  };
}
