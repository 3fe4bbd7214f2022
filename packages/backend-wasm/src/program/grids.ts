/**
 * The codebooks of the formats iq1, iq2 and iq3 for `assembly/quant/dequantize-iq.ts`. They are extracted from the
 * codecs of `@winnow/tensor`: a block with scale 1 and no signs dequantizes to the vectors of its codes.
 */
import type { Program } from '@winnow/ops';
import { decode, dtypeInfo, type DType } from '@winnow/tensor';
import { gridAddresses } from '../kernels/layout.generated.js';
import type { Heap } from '../memory/heap.js';

interface Book {
  readonly numVectors: number;
  readonly vectorLength: number;
  /** Converts a dequantized value to an element of the codebook. */
  readonly element: (value: number) => number;
  /** Writes the code of a vector into a block that is zero except for its scale. */
  readonly write: (block: Uint8Array, place: number, code: number) => void;
}

const codebooks: Readonly<Record<keyof typeof gridAddresses, Book>> = {
  iq2_xxs: {
    numVectors: 256,
    vectorLength: 8,
    element: (value) => value * 8,
    write: (block, place, code) => (block[2 + (place >> 2) * 8 + (place & 3)] = code),
  },
  iq2_xs: {
    numVectors: 512,
    vectorLength: 8,
    element: (value) => value * 8,
    write: (block, place, code) => block.set([code & 255, code >> 8], 2 + place * 2),
  },
  iq2_s: {
    numVectors: 1024,
    vectorLength: 8,
    element: (value) => value * 8,
    write(block, place, code) {
      block[2 + place] = code & 255;
      block[66 + (place >> 2)] |= (code >> 8) << ((place & 3) * 2);
    },
  },
  iq3_xxs: {
    numVectors: 256,
    vectorLength: 4,
    element: (value) => value * 4,
    write: (block, place, code) => (block[2 + place] = code),
  },
  iq3_s: {
    numVectors: 512,
    vectorLength: 4,
    element: (value) => value,
    write(block, place, code) {
      block[2 + place] = code & 255;
      block[66 + (place >> 3)] |= (code >> 8) << (place & 7);
    },
  },
  iq1_s: {
    numVectors: 2048,
    vectorLength: 8,
    element: (value) => value - 0.125,
    write(block, place, code) {
      block[2 + place] = code & 255;
      const word = 34 + (place >> 2) * 2;
      const bits = block[word] | (block[word + 1] << 8) | ((code >> 8) << ((place & 3) * 3));
      block.set([bits & 255, bits >> 8], word);
    },
  },
};

/** The elements of a codebook, one byte each. */
function elementsOf(dtype: DType, { numVectors, vectorLength, element, write }: Book): Int8Array {
  const { blockBytes, blockSize } = dtypeInfo(dtype);
  const perBlock = blockSize / vectorLength;
  const elements = new Int8Array(numVectors * vectorLength);
  const values = new Float32Array(blockSize);
  for (let first = 0; first < numVectors; first += perBlock) {
    const block = new Uint8Array(blockBytes);
    block.set([0x00, 0x3c]); // the scale: 1
    for (let place = 0; place < perBlock; place++) write(block, place, first + place);
    decode(dtype, block, values);
    for (let i = 0; i < blockSize; i++) elements[first * vectorLength + i] = element(values[i]);
  }
  return elements;
}

/** Writes the codebooks that a program's tensors need. */
export function writeGrids({ records }: Program, heap: Heap): void {
  const dtypes = new Set(records.flatMap(({ inputs }) => Object.values(inputs).map(({ dtype }) => dtype)));
  if (dtypes.has('iq1_m')) dtypes.add('iq1_s'); // they share their codebook
  for (const dtype of dtypes) {
    if (!(dtype in codebooks)) continue;
    const name = dtype as keyof typeof codebooks;
    const elements = elementsOf(dtype, codebooks[name]);
    heap.bytes(gridAddresses[name], elements.length).set(new Uint8Array(elements.buffer));
  }
}
