/** Prompts in which a text that is no token stands for an image. */
import type { ImageMarks } from '@winnow/models';
import { finish, type Sliced } from '@winnow/tensor';
import type { EncodeOptions, Tokenizer } from '@winnow/tokenizers';
import { imagePlaceId } from './image-rows.js';

/**
 * The tokenizer, which writes `before`, `imagePlaceId` and `after` for each `marker` of a text, unless special tokens are not
 * parsed.
 */
export function createImageTokenizer(inner: Tokenizer, { marker, before, after }: ImageMarks): Tokenizer {
  function* encodeSliced(text: string, options: EncodeOptions = {}): Sliced<Int32Array> {
    const parts = options.parseSpecialTokens === false ? [text] : text.split(marker);
    const last = parts.length - 1;
    if (last === 0) return yield* inner.encodeSliced(text, options);
    const adds = options.addSpecialTokens !== false;
    const ids: number[] = adds && inner.addBos && inner.bosId !== undefined ? [inner.bosId] : [];
    for (const [index, part] of parts.entries()) {
      const written = `${index === 0 ? '' : after}${part}${index === last ? '' : before}`;
      for (const id of yield* inner.encodeSliced(written, { ...options, addSpecialTokens: false })) ids.push(id);
      if (index < last) ids.push(imagePlaceId);
    }
    if (adds && inner.addEos && inner.eosId !== undefined) ids.push(inner.eosId);
    return Int32Array.from(ids);
  }
  const { kind, vocabSize, bosId, eosId, eosIds, unkId, padId, sepId, clsId, maskId, pair, addBos, addEos } = inner;
  return {
    ...{ kind, vocabSize, bosId, eosId, eosIds, unkId, padId, sepId, clsId, maskId, pair, addBos, addEos },
    maxTokenBytes: inner.maxTokenBytes && Math.max(inner.maxTokenBytes, new TextEncoder().encode(marker).length),
    encode: (text, options) => finish(encodeSliced(text, options)),
    encodeSliced,
    decode: (ids, options) => inner.decode(ids, options),
    tokenBytes: (id) => inner.tokenBytes(id),
    tokenText: (id) => inner.tokenText(id),
    isSpecial: (id) => inner.isSpecial(id),
    idOf: (text) => inner.idOf(text),
    createDetokenizer: (options) => inner.createDetokenizer(options),
  };
}
