/** The language model of a checkpoint that has other parts too, as if it were alone. */
import type { StoredTensor, TensorStore } from '@winnow/bytes';
import type { ModelFile } from './architecture.js';
import { Fields } from './fields.js';

export interface TextPart {
  /** Beginnings of names and what they become. */
  readonly renamed: readonly (readonly [prefix: string, replacement: string])[];
  /** Beginnings of the names of other parts. */
  readonly otherParts: readonly string[];
}

/** Reads `text_config` and the tensors of the language model; a file without `text_config` is as it is. */
export function textPartOf(file: ModelFile, { renamed, otherParts }: TextPart): ModelFile {
  const { format, fields, store } = file;
  if (format === 'gguf' || !fields.has('text_config')) return file;
  const text = Fields.ofJson(fields.source, fields.raw('text_config'));
  const tensors = new Map<string, StoredTensor>();
  for (const [name, tensor] of store.tensors) {
    if (otherParts.some((prefix) => name.startsWith(prefix))) continue;
    const [prefix, replacement] = renamed.find(([begin]) => name.startsWith(begin)) ?? ['', ''];
    tensors.set(replacement + name.slice(prefix.length), tensor);
  }
  const part: TensorStore = { name: store.name, tensors, close: () => store.close() };
  // what applies to the whole checkpoint stands outside
  return { format, store: part, fields: text.over(fields, ['quantization_config', 'tie_word_embeddings']) };
}
