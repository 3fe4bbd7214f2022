/** Stands in for the tokenizer of a model file that has none: token ids work, text is refused. */
import { FormatError } from '@winnow/tensor';
import type { Tokenizer } from '@winnow/tokenizers';

/** Everything that needs a vocabulary throws; streaming gives empty texts, so that generation from ids goes on. */
export function createMissingTokenizer(source: string, field: string, vocabSize: number): Tokenizer {
  const refuse = (): never => {
    throw new FormatError({
      source,
      field,
      message: 'missing: without a tokenizer this model takes and gives token ids only',
    });
  };
  return {
    kind: 'library',
    vocabSize,
    bosId: undefined,
    eosId: undefined,
    eosIds: [],
    unkId: undefined,
    padId: undefined,
    sepId: undefined,
    clsId: undefined,
    maskId: undefined,
    addBos: false,
    addEos: false,
    encode: refuse,
    decode: refuse,
    tokenBytes: refuse,
    tokenText: refuse,
    isSpecial: () => false,
    idOf: () => undefined,
    createDetokenizer: () => ({ push: () => '', flush: () => '' }),
  };
}
