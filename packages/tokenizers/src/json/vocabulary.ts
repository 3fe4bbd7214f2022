/** Token texts, ids and added tokens of tokenizer.json. */
import { isRecord } from '@winnow/tensor';
import type { AddedToken } from './added-tokens.js';
import type { JsonObject } from './value.js';
import { asArray, asId, asNumber, asObject, asString, jsonError, optionalBoolean } from './value.js';

export interface JsonVocabulary {
  /** Text of each id; '' for an id that the file omits. */
  readonly texts: readonly string[];
  /** Ids by token text, including added tokens. */
  readonly idByText: ReadonlyMap<string, number>;
  /** Token texts that the model itself may produce: all except special added tokens. */
  readonly modelIds: ReadonlyMap<string, number>;
  /** Unigram scores by id, else `undefined`. */
  readonly scores: Float64Array | undefined;
  readonly added: readonly AddedToken[];
  /** 1 for special tokens. */
  readonly special: Uint8Array;
  /** 1 for added tokens, special or not: their bytes are the UTF-8 of their text. */
  readonly isAdded: Uint8Array;
}

/** @throws FormatError */
export function readVocabulary(root: JsonObject, model: JsonObject): JsonVocabulary {
  const entries: [text: string, id: number][] = [];
  const scores: number[] = [];
  if (Array.isArray(model['vocab'])) {
    (model['vocab'] as readonly unknown[]).forEach((entry, id) => {
      const pair = asArray(entry, `model.vocab[${id}]`);
      entries.push([asString(pair[0], `model.vocab[${id}][0]`), asId(id, `model.vocab[${id}]`)]);
      scores.push(asNumber(pair[1], `model.vocab[${id}][1]`));
    });
  } else {
    for (const [text, id] of Object.entries(asObject(model['vocab'], 'model.vocab'))) {
      entries.push([text, asId(id, `model.vocab[${JSON.stringify(text.slice(0, 60))}]`)]);
    }
  }
  const added = readAddedTokens(root['added_tokens']);
  let size = 0;
  for (const [, id] of entries) size = Math.max(size, id + 1);
  for (const token of added) size = Math.max(size, token.id + 1);
  if (size === 0) throw jsonError('model.vocab', 'expected at least one token, found none');
  const texts = new Array<string>(size).fill('');
  const idByText = new Map<string, number>();
  const modelIds = new Map<string, number>();
  const special = new Uint8Array(size);
  const isAdded = new Uint8Array(size);
  for (const token of added) {
    isAdded[token.id] = 1;
    if (token.special) special[token.id] = 1;
  }
  for (const [text, id] of entries) {
    texts[id] = text;
    idByText.set(text, id);
    if (special[id] === 0) modelIds.set(text, id);
  }
  for (const token of added) {
    texts[token.id] = token.content;
    idByText.set(token.content, token.id);
  }
  const isUnigram = Array.isArray(model['vocab']);
  return {
    texts,
    idByText,
    modelIds,
    scores: isUnigram ? Float64Array.from(scores) : undefined,
    added,
    special,
    isAdded,
  };
}

function readAddedTokens(value: unknown): AddedToken[] {
  if (value === null || value === undefined) return [];
  return asArray(value, 'added_tokens').map((entry, index) => {
    const field = `added_tokens[${index}]`;
    const token = asObject(entry, field);
    const flag = (name: string): boolean | undefined => optionalBoolean(token[name], `${field}.${name}`);
    const special = flag('special') ?? false;
    return {
      id: asId(token['id'], `${field}.id`),
      content: asString(token['content'], `${field}.content`),
      singleWord: flag('single_word') ?? false,
      leftStrip: flag('lstrip') ?? false,
      rightStrip: flag('rstrip') ?? false,
      normalized: flag('normalized') ?? !special,
      special,
    };
  });
}

/** The text of `bos_token` and similar fields: a string, or an object with `content`. */
export function configToken(config: JsonObject, name: string): string | undefined {
  const value = config[name];
  if (typeof value === 'string') return value;
  return isRecord(value) && typeof value['content'] === 'string' ? value['content'] : undefined;
}
