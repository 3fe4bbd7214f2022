/** Replaces the tokenizer of a model file that has none: token ids work, text is rejected. */
import { FormatError } from '@winnow/tensor';
import type { Tokenizer } from '@winnow/tokenizers';

/** Everything that needs a vocabulary throws; streaming returns empty texts, so that generation from ids works. */
export function createMissingTokenizer(source: string, field: string, vocabSize: number): Tokenizer {
  const refuse = (): never => {
    throw new FormatError({
      source,
      field,
      message: 'missing; without a tokenizer, this model only takes and returns token ids',
    });
  };
  return {
    kind: 'none',
    vocabSize,
    bosId: undefined,
    eosId: undefined,
    eosIds: [],
    unkId: undefined,
    padId: undefined,
    sepId: undefined,
    clsId: undefined,
    maskId: undefined,
    maxTokenBytes: undefined,
    addBos: false,
    addEos: false,
    pair: undefined,
    encode: refuse,
    encodeSliced: refuse,
    decode: refuse,
    tokenBytes: refuse,
    tokenText: refuse,
    isSpecial: () => false,
    idOf: () => undefined,
    createDetokenizer: () => ({ push: () => '', flush: () => '' }),
  };
}
