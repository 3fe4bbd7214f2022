/** Extracts the language model of a multimodal checkpoint. */
import type { StoredTensor } from '@winnow/bytes';
import { Fields } from '../file/fields.js';
import type { RequestedStore } from '../file/weights.js';
import type { ModelFile } from '../program/architecture.js';

export interface TextPart {
  /** Name prefixes and their replacements. */
  readonly renamed: readonly (readonly [prefix: string, replacement: string])[];
  /** Name prefixes of other parts. */
  readonly otherParts: readonly string[];
}

/** Newer and older prefixes in checkpoints of a language model, an image encoder and a projector. */
export const visionLanguageParts: TextPart = {
  renamed: [
    ['model.language_model.', 'model.'],
    ['language_model.', ''],
  ],
  otherParts: /* @__PURE__ */ ['', 'model.'].flatMap((outer) =>
    ['vision_tower.', 'multi_modal_projector.', 'image_newline'].map((name) => outer + name),
  ),
};

/** Names of checkpoints with a language model and encoders of images and sound. */
export const multimodalParts: TextPart = {
  renamed: [
    ['model.language_model.', 'model.'],
    ['language_model.', ''],
  ],
  otherParts: /* @__PURE__ */ ['', 'model.'].flatMap((outer) =>
    ['vision_tower.', 'vision_embedder.', 'embed_vision.', 'audio_tower.', 'embed_audio.'].map((name) => outer + name),
  ),
};

/** Selects the settings of the language model (`text_config`, or all settings without it) and its tensors. */
export function textPartOf(file: ModelFile, { renamed, otherParts }: TextPart): ModelFile {
  const { format, fields, store } = file;
  if (format === 'gguf') return file;
  const text = fields.has('text_config') ? Fields.ofJson(fields.source, fields.raw('text_config')) : fields;
  const renamedText = renamedStore(store, (name) => {
    if (otherParts.some((prefix) => name.startsWith(prefix))) return undefined;
    const [prefix, replacement] = renamed.find(([begin]) => name.startsWith(begin)) ?? ['', ''];
    return replacement + name.slice(prefix.length);
  });
  // transformers 5 uses the outer setting, and leaves the inner one at the default of its class
  const isUntied = fields.raw('tie_word_embeddings') === false && renamedText.tensors.has('lm_head.weight');
  const own = isUntied ? text.with({ tie_word_embeddings: false }) : text;
  // settings of the whole checkpoint are outside `text_config`
  return { format, fields: own.over(fields, ['quantization_config', 'tie_word_embeddings']), store: renamedText };
}

/**
 * Gives tensors the prefix `model.`, which models lack that were saved without the output matrix (`layers...`).
 */
export function withOuterName(file: ModelFile): ModelFile {
  const { format, store } = file;
  if (format === 'gguf' || !store.tensors.has('embed_tokens.weight')) return file;
  const outside = (name: string): boolean => /^(lm_head\.|model\.|dense_)/.test(name);
  return { ...file, store: renamedStore(store, (name) => (outside(name) ? name : `model.${name}`)) };
}

/** @param rename returns the new name, or `undefined` to omit the tensor */
export function renamedStore(store: RequestedStore, rename: (name: string) => string | undefined): RequestedStore {
  const tensors = new Map<string, StoredTensor>();
  for (const [name, tensor] of store.tensors) {
    const renamed = rename(name);
    if (renamed !== undefined) tensors.set(renamed, tensor);
  }
  const { find } = store;
  return { name: store.name, tensors, close: () => store.close(), ...(find === undefined ? {} : { find }) };
}
