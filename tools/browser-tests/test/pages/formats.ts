/** In the page, and in Node for comparison: file formats, folders and tokenizers. Requires only `fetch`, `Blob` and `crypto`. */
import {
  blobSource,
  httpSource,
  memorySink,
  memorySource,
  readBytes,
  type StoredTensor,
  type TensorStore,
} from '@winnow/bytes';
import { openGguf, openGgufUrl, writeGguf } from '@winnow/gguf';
import { blobFolder, memoryFolder, openHubFolder, type HubFiles } from '@winnow/hub';
import { openSafetensors, writeSafetensors } from '@winnow/safetensors';
import { WinnowError } from '@winnow/tensor';
import { ggufVocabulary, tokenizerFromGguf, tokenizerFromJson, type Tokenizer } from '@winnow/tokenizers';

/** `name dtype shape sha256` of every tensor. */
type TensorList = readonly string[];

export interface TokenizerFacts {
  readonly kind: string;
  readonly vocabSize: number;
  readonly tokens: readonly (readonly number[])[];
  readonly decoded: readonly string[];
  /** The text decoded token by token. */
  readonly streamed: readonly string[];
}

export interface FolderFacts {
  readonly architecture: string;
  readonly weightFiles: unknown;
  readonly hasTokenizerJson: boolean;
  readonly list: readonly string[];
}

async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

async function listTensors(store: TensorStore): Promise<TensorList> {
  const lines: string[] = [];
  for (const tensor of store.tensors.values()) {
    const { name, dtype, shape } = tensor;
    lines.push(`${name} ${dtype} ${shape.join('x')} ${await sha256(await readTensor(tensor))}`);
  }
  return lines;
}

async function readTensor(tensor: StoredTensor): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(tensor.sizeBytes);
  await tensor.read(bytes);
  return bytes;
}

async function download(url: string): Promise<Blob> {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  return response.blob();
}

function describeTokenizer(tokenizer: Tokenizer, texts: readonly string[]): TokenizerFacts {
  const tokens = texts.map((text) => [...tokenizer.encode(text, { addSpecialTokens: false })]);
  const detokenizer = tokenizer.createDetokenizer();
  return {
    kind: tokenizer.kind,
    vocabSize: tokenizer.vocabSize,
    tokens,
    decoded: tokens.map((ids) => tokenizer.decode(ids)),
    streamed: tokens.map((ids) => ids.map((id) => detokenizer.push(id)).join('') + detokenizer.flush()),
  };
}

async function describeFolder(files: HubFiles): Promise<FolderFacts> {
  const model = await openHubFolder(files);
  return {
    architecture: model.config.string('model_type'),
    weightFiles: model.weightFiles,
    hasTokenizerJson: model.hasTokenizerJson,
    list: await files.list(),
  };
}

async function codeOf(action: () => Promise<unknown>): Promise<string> {
  try {
    await action();
    return 'no error';
  } catch (error) {
    return WinnowError.isInstance(error) ? error.code : `not of the family: ${String(error)}`;
  }
}

export const api = {
  /** Reads a GGUF file through URL ranges and from a Blob, and rewrites and rereads it. */
  async gguf(url: string): Promise<readonly TensorList[]> {
    const byUrl = await openGgufUrl(url);
    const byBlob = await openGguf(blobSource(await download(url)));
    const sink = memorySink();
    const tensors = [...byBlob.tensors.values()].map((tensor) => ({ ...tensor, data: () => readTensor(tensor) }));
    await writeGguf(sink, { metadata: byBlob.metadata, tensors });
    const written = await openGguf(memorySource(sink.toBytes()));
    return [await listTensors(byUrl), await listTensors(byBlob), await listTensors(written)];
  },

  /** The same for safetensors; lists are sorted, since the writer sorts tensors. */
  async safetensors(url: string): Promise<readonly TensorList[]> {
    const byUrl = await openSafetensors(await httpSource(url));
    const byBlob = await openSafetensors(blobSource(await download(url)));
    const sink = memorySink();
    await writeSafetensors(sink, { tensors: byBlob.tensors.values() });
    const written = await openSafetensors(memorySource(sink.toBytes()));
    const lists = [await listTensors(byUrl), await listTensors(byBlob), await listTensors(written)];
    return lists.map((list) => [...list].sort());
  },

  async tokenizerJson({ url, texts }: { url: string; texts: readonly string[] }): Promise<TokenizerFacts> {
    return describeTokenizer(tokenizerFromJson(await (await fetch(url)).json()), texts);
  },

  async tokenizerGguf({ url, texts }: { url: string; texts: readonly string[] }): Promise<TokenizerFacts> {
    const { metadata } = await openGgufUrl(url);
    return describeTokenizer(tokenizerFromGguf(ggufVocabulary((key) => metadata.get(key)?.value)), texts);
  },

  /** Folders as Blobs, then as bytes and strings in memory. */
  async folders({ url, names }: { url: string; names: readonly string[] }): Promise<readonly FolderFacts[]> {
    const blobs = new Map<string, Blob>();
    const contents: Record<string, Uint8Array | string> = {};
    for (const name of names) {
      const blob = await download(new URL(name, url).href);
      blobs.set(name, blob);
      contents[name] = name.endsWith('.json') ? await blob.text() : await readBytes(blobSource(blob));
    }
    return [await describeFolder(blobFolder(blobs)), await describeFolder(memoryFolder(contents))];
  },

  /** Error codes of broken and missing files. */
  async refusals(url: string): Promise<Readonly<Record<string, string>>> {
    const noise = new Blob([new Uint8Array(64).fill(7)]);
    return {
      gguf: await codeOf(() => openGguf(blobSource(noise))),
      safetensors: await codeOf(() => openSafetensors(blobSource(noise))),
      tokenizer: await codeOf(async () => tokenizerFromJson({ model: { type: 'BPE' } })),
      folder: await codeOf(() => openHubFolder(memoryFolder({ 'config.json': '{' }))),
      emptyFolder: await codeOf(() => openHubFolder(blobFolder(new Map()))),
      missingFile: await codeOf(() => openGgufUrl(url)),
    };
  },
};

export type FormatsPage = typeof api;

Object.assign(globalThis, { api });
