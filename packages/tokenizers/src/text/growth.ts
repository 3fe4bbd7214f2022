/** How much longer the normalizers and pre-tokenizers of a file may make a text: steps that double it could follow each other. */
import { CapacityError } from '@winnow/tensor';

/** Of one character; the longest compatibility decomposition has 18 (U+FDFA). */
const maxGrowth = 64;
/** For short texts, of which each step may add some characters. */
const maxAdded = 1 << 16;

/** @throws CapacityError */
export function checkGrowth(length: number, originalLength: number): void {
  const available = maxGrowth * originalLength + maxAdded;
  if (length <= available) return;
  const resource = 'tokenizer: a text after the normalizers and pre-tokenizers of tokenizer.json';
  throw new CapacityError({ resource, needed: length, available, unit: 'characters' });
}
