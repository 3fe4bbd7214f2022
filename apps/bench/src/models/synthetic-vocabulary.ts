/** A SentencePiece vocabulary of any size: special tokens, bytes, letters, and numbered words that no text contains. */

/** Token types of GGUF files. */
const tokenType = { normal: 1, unknown: 2, control: 3, byte: 6 } as const;

export interface SyntheticVocabulary {
  readonly texts: readonly string[];
  readonly scores: Float32Array;
  readonly types: Int32Array;
}

/** Id of the byte 0; the other bytes follow. */
export const firstByteId: number = 3;

/** First id of an ordinary word: random prompts use ids from here on. */
export const firstWordId: number = firstByteId + 256 + 1 + 95;

/** @param size at least `firstWordId` */
export function syntheticVocabulary(size: number): SyntheticVocabulary {
  const texts = ['<unk>', '<s>', '</s>'];
  for (let byte = 0; byte < 256; byte++) texts.push(`<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`);
  texts.push('\u2581');
  for (let code = 33; code < 128; code++) texts.push(code === 127 ? '\u00e9' : String.fromCharCode(code));
  while (texts.length < size) texts.push(`\u2581w${texts.length}`);
  const types = new Int32Array(size).fill(tokenType.normal);
  types.set([tokenType.unknown, tokenType.control, tokenType.control]);
  types.fill(tokenType.byte, 3, 3 + 256);
  const scores = Float32Array.from({ length: size }, (_, id) => (id < 3 + 256 ? 0 : -id));
  return { texts: texts.slice(0, size), scores, types };
}
