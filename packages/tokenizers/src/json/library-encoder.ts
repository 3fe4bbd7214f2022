/** Encodes with `@huggingface/tokenizers`: for components that Winnow's own pipeline lacks. */
import { BackendError, CapacityError, isRecord, type SliceCounter, type Sliced } from '@winnow/tensor';
import type { IdList } from '../tables/id-list.js';
import type { TextEncoderModel } from '../tokenizer/vocabulary-tokenizer.js';
import { HostPattern } from '../pattern/window-search.js';
import type { LibraryTokenizer } from './library.js';
import { openLibraryTokenizer } from './library.js';
import { readPattern } from './pattern.js';
import type { JsonObject } from './value.js';
import { type UnsupportedComponent, asNumber, jsonError } from './value.js';

/** Bounds how long the library, which cannot be interrupted, may hold the thread: about 3 µs per character, 0.4 s in all. */
const MAX_LENGTH = 1 << 17;

/** @throws FormatError when the library does not support the component either */
export function createLibraryEncoder(
  root: JsonObject,
  config: JsonObject,
  cause: UnsupportedComponent,
): TextEncoderModel {
  return new LibraryEncoder(root, config, cause);
}

class LibraryEncoder implements TextEncoderModel {
  readonly #open: (source: JsonObject) => LibraryTokenizer;
  readonly #root: JsonObject;
  readonly #cause: UnsupportedComponent;
  readonly #parsing: LibraryTokenizer;
  /** For text whose special tokens are plain text; opened when it is first needed. */
  #plain: LibraryTokenizer | undefined;

  constructor(root: JsonObject, config: JsonObject, cause: UnsupportedComponent) {
    this.#open = (source) => openLibrary(source, config, cause);
    this.#root = root;
    this.#cause = cause;
    this.#parsing = this.#open(root);
  }

  *encode(text: string, parseSpecialTokens: boolean, ids: IdList, work: SliceCounter): Sliced<void> {
    if (text === '') return;
    if (text.length > MAX_LENGTH) throw this.#tooLong(text.length);
    if (work.spend(text.length)) yield;
    let library = this.#parsing;
    if (!parseSpecialTokens) library = this.#plain ??= this.#open(withoutSpecialTokens(this.#root));
    try {
      ids.pushAll(library.encode(text, { add_special_tokens: false }).ids);
    } catch (error) {
      throw new BackendError({ backend: '@huggingface/tokenizers', message: String(error) }, { cause: error });
    }
  }

  #tooLong(needed: number): CapacityError {
    const { field, message } = this.#cause;
    return new CapacityError({
      resource: 'tokenizer: a text for @huggingface/tokenizers',
      ...{ needed, available: MAX_LENGTH, unit: 'characters' },
      hint: `Winnow lacks a part of this tokenizer (${field}: ${message}); encode the text in parts`,
    });
  }
}

function openLibrary(source: JsonObject, config: JsonObject, cause: UnsupportedComponent): LibraryTokenizer {
  checkComponents(source['normalizer'], 'normalizer', 0, cause);
  checkComponents(source['pre_tokenizer'], 'pre_tokenizer', 0, cause);
  try {
    const defaults = { normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null, added_tokens: [] };
    return openLibraryTokenizer({ ...defaults, ...source }, config);
  } catch (error) {
    throw jsonError(cause.field, `not supported: ${cause.message} (${String(error)})`);
  }
}

/** Checks the fields on which the library depends without checking them itself. */
function checkComponents(value: unknown, field: string, depth: number, cause: UnsupportedComponent): void {
  if (!isRecord(value)) return;
  if (depth > 8) throw jsonError(field, 'expected at most 8 nested sequences');
  if (value['type'] === 'FixedLength') {
    const length = asNumber(value['length'], `${field}.length`);
    // The library advances by this many code units, so it would never finish with 0 or less.
    if (!Number.isSafeInteger(length) || length < 1) {
      throw jsonError(`${field}.length`, `expected a positive integer, found ${length}`);
    }
  }
  const pattern = value['pattern'];
  if (isRecord(pattern) && !(readPattern(pattern, `${field}.pattern`) instanceof HostPattern)) {
    const message = `expected an expression that cannot backtrack, since the library runs it (${cause.message})`;
    throw jsonError(`${field}.pattern.Regex`, message);
  }
  for (const name of ['normalizers', 'pretokenizers']) {
    const steps = value[name];
    if (!Array.isArray(steps)) continue;
    steps.forEach((step, index) => checkComponents(step, `${field}.${name}[${index}]`, depth + 1, cause));
  }
}

function withoutSpecialTokens(root: JsonObject): JsonObject {
  const added = Array.isArray(root['added_tokens']) ? (root['added_tokens'] as readonly unknown[]) : [];
  return { ...root, added_tokens: added.filter((token) => !(isRecord(token) && token['special'] === true)) };
}
