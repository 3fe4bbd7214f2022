import { CapacityError } from '@winnow/tensor';
import { expect, it } from 'vitest';
import { VocabularyTokenizer } from './vocabulary-tokenizer.js';

it('reports an exhausted regular expression engine as a CapacityError', () => {
  const none = undefined;
  const tokenizer = new VocabularyTokenizer({
    kind: 'bpe',
    texts: ['a'],
    idByText: new Map([['a', 0]]),
    bytesOf: () => new Uint8Array(1),
    special: new Uint8Array(1),
    ids: { bosId: none, eosId: none, unkId: none, padId: none, sepId: none, clsId: none, maskId: none },
    eosIds: [],
    prefix: [],
    suffix: [],
    stripLeadingSpace: false,
    encoder: {
      encode() {
        throw new RangeError('Maximum call stack size exceeded');
      },
    },
  });
  expect(() => tokenizer.encode('aaa')).toThrow(CapacityError);
});
