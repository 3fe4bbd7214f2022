/** Limits how much the normalizers and pre-tokenizers of a file may lengthen a text: a file could chain steps that double it. */
import { CapacityError } from '@winnow/tensor';

/** Maximum number of characters per original one; the longest compatibility decomposition has 18 (U+FDFA). */
const maxGrowth = 64;
/** Additional characters for short texts, to which each step may add some. */
const maxAdded = 1 << 16;

/** @throws CapacityError */
export function checkGrowth(length: number, originalLength: number): void {
  const available = maxGrowth * originalLength + maxAdded;
  if (length <= available) return;
  const resource = 'tokenizer: a text after the normalizers and pre-tokenizers of tokenizer.json';
  throw new CapacityError({ resource, needed: length, available, unit: 'characters' });
}
