/** Opens and reads the LoRA adapters of the options, before the model. */
import { blobSource, type ByteSource } from '@winnow/bytes';
import { openGguf, openGgufUrl, type GgufFile } from '@winnow/gguf';
import { parseJsonObject, type HubFiles } from '@winnow/hub';
import { Fields, readLora, type LoraFile, type ScaledLora } from '@winnow/models';
import { openSafetensors } from '@winnow/safetensors';
import { ArgumentError, FormatError, type OptionNames } from '@winnow/tensor';
import { readBytes } from '@winnow/bytes';
import { openFolderGguf, urlFolder, type ModelLocation, type OpenOptions } from './location.js';

/** A low-rank adapter (LoRA) to load with a model. */
export interface AdapterOption {
  /**
   * A `.gguf` file as convert_lora_to_gguf of llama.cpp writes it, or a PEFT folder (`adapter_config.json` and
   * `adapter_model.safetensors`), given by path, URL, Blob, open file or the files of the folder.
   */
  readonly source: ModelLocation;
  /** Multiplies the adapter's own scale. Default 1. */
  readonly scale?: number;
}

export interface LoraOptions {
  /** The adapters, which are summed. Default: none. */
  readonly adapters?: readonly AdapterOption[];
  /**
   * `runtime` adds two small GEMMs to each adapted one and works with weights of any dtype. `merge` changes the weights
   * while they load, which costs nothing later but requantizes quantized weights. Default `runtime`.
   */
  readonly mode?: 'runtime' | 'merge';
}

const adapterNames: OptionNames<AdapterOption> = { source: true, scale: true };
export const loraNames: OptionNames<LoraOptions> = { adapters: adapterNames, mode: true };

/** Opens a path of the file system: a GGUF file, or the files of a folder. */
export type OpenAdapterPath = (path: string | URL) => Promise<GgufFile | HubFiles>;

/** @throws {FormatError | IoError | ArgumentError} */
export async function openAdapters(
  options: OpenOptions & { readonly lora?: LoraOptions },
  openPath: OpenAdapterPath | undefined,
): Promise<ScaledLora[]> {
  const opened: ScaledLora[] = [];
  for (const { source, scale = 1 } of options.lora?.adapters ?? []) {
    const file = await openFile(source, options, openPath);
    try {
      opened.push({ lora: await readLora(file, options.signal), scale });
    } finally {
      await file.store.close();
    }
  }
  return opened;
}

async function openFile(
  source: ModelLocation,
  { fetch: request = fetch, signal }: OpenOptions,
  openPath: OpenAdapterPath | undefined,
): Promise<LoraFile> {
  const withSignal = signal === undefined ? {} : { signal };
  if (typeof source === 'string' || source instanceof URL) {
    const text = String(source);
    if (/^https?:/i.test(text)) {
      const url = new URL(text);
      if (url.pathname.endsWith('/')) return peftFile(urlFolder(url, request, signal), withSignal);
      return ggufFile(await openGgufUrl(url, { fetch: request, ...withSignal }));
    }
    if (openPath === undefined) {
      const expected = 'an http(s) URL, a Blob or files';
      throw new ArgumentError({ argument: 'adapter source', expected, actual: text });
    }
    const found = await openPath(source);
    return 'metadata' in found ? ggufFile(found) : peftFile(found, withSignal);
  }
  if (source instanceof Blob) return ggufFile(await openGguf(blobSource(source), withSignal));
  if ('files' in source) return ggufFile(await openFolderGguf(source, withSignal));
  if ('list' in source) return peftFile(source, withSignal);
  return ggufFile(await openGguf(source as ByteSource, withSignal));
}

function ggufFile(file: GgufFile): LoraFile {
  return { format: 'gguf', fields: new Fields(file.name, (key) => file.metadata.get(key)?.value), store: file };
}

/** Far more than any configuration has. */
const maxConfigBytes = 1024 * 1024;

async function peftFile(files: HubFiles, options: { signal?: AbortSignal }): Promise<LoraFile> {
  const configName = 'adapter_config.json';
  const config = await files.open(configName);
  let text: string;
  try {
    if (config.sizeBytes > maxConfigBytes) {
      throw new FormatError({
        source: config.name,
        field: configName,
        message: `expected at most ${maxConfigBytes} bytes`,
      });
    }
    text = new TextDecoder().decode(await readBytes(config, 0, config.sizeBytes, options));
  } finally {
    await config.close();
  }
  const source = `${files.name}/${configName}`;
  const fields = Fields.ofJson(source, parseJsonObject(text, source).value);
  const store = await openSafetensors(await files.open('adapter_model.safetensors'), options);
  return { format: 'safetensors', fields, store };
}
