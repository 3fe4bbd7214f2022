/** The image encoder of a GGUF model, which llama.cpp keeps in a file of its own. */
import { describeModel, type ModelDescription, type ModelFile } from '@winnow/models';
import { ArgumentError, FormatError } from '@winnow/tensor';
import type { Tokenizer } from '@winnow/tokenizers';
import type { EngineHost } from './engine.js';
import type { ModelLocation } from './location.js';
import { openLocation } from './open-location.js';
import type { OpenedModel } from './opened-model.js';
import type { ResolvedOptions } from './resolved-options.js';

/** Adds the image encoder of an open model if that is a file of its own. Takes ownership of `opened`. */
export async function withMmproj(
  opened: OpenedModel,
  location: ModelLocation,
  options: ResolvedOptions,
  host: EngineHost,
): Promise<OpenedModel> {
  if (options.mmproj === false) return opened;
  try {
    const found = options.mmproj === undefined ? await host.findMmproj?.(location) : undefined;
    const mmprojLocation = options.mmproj ?? found;
    if (mmprojLocation === undefined) return opened;
    let mmproj: OpenedModel | undefined;
    return {
      ...opened,
      mmproj: {
        isFound: options.mmproj === undefined,
        async openFile() {
          mmproj = await openLocation(mmprojLocation, options, host.openPath);
          return mmproj.openFile();
        },
      },
      close: () => opened.close().finally(() => mmproj?.close()),
    };
  } catch (error) {
    await opened.close();
    throw error;
  }
}

/**
 * Describes a model with its image encoder.
 * @param notice receives why a file beside the model is not used
 * @throws {ArgumentError} for an image encoder of a model that is no GGUF file
 * @throws {FormatError} as `describeModel`
 */
export async function describeOpened(
  { mmproj }: OpenedModel,
  file: ModelFile,
  tokenizer: Tokenizer | undefined,
  notice: (text: string) => void,
): Promise<ModelDescription> {
  if (mmproj === undefined) return describeModel(file);
  if (file.format !== 'gguf') {
    const expected = 'nothing, since the folder of a model has its own image encoder';
    throw new ArgumentError({ argument: 'mmproj', expected, actual: 'a file' });
  }
  try {
    return await describeModel(file, { file: await mmproj.openFile(), idOf: (text) => tokenizer?.idOf(text) });
  } catch (error) {
    if (!mmproj.isFound || !FormatError.isInstance(error)) throw error;
    const description = await describeModel(file);
    notice(`the image encoder beside the model is not used: ${error.message}`);
    return description;
  }
}
