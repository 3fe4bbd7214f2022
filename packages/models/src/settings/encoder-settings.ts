/** Common settings and tensors of encoders. */
import type { TensorStore } from '@winnow/bytes';
import type { WeightRequest } from '../file/weights.js';
import type { ModelFile } from '../program/architecture.js';
import type { DecoderConfig, RopeConfig } from '../program/config.js';
import { denseLayers, tokenLayers } from '../program/embedding-program.js';
import { tensorNames, type Bias, type Names, type TensorNames } from '../program/tensors.js';
import { refuseSettings } from './config-checks.js';
import { unrotatedFromGguf, type GgufDecoder } from './gguf-settings.js';
import { unrotatedFromHub, type HubDecoder } from './hub-settings.js';
import { renamedStore } from './text-part.js';

/** Settings of an encoder. */
export type EncoderConfig = DecoderConfig & { readonly isEncoder: true };
export type RotaryEncoderConfig = EncoderConfig & { readonly rope: RopeConfig };

/** @throws {FormatError} for a missing, invalid or unknown key */
export function encoderFromGguf(file: ModelFile, architecture: string, options: Partial<GgufDecoder>): EncoderConfig {
  refuseSettings(file.fields, { [`${architecture}.attention.causal`]: [false] });
  const known = ['attention.causal'];
  const config = unrotatedFromGguf(file, { architecture, norm: 'layer', known, ...options });
  return { ...config, isEncoder: true };
}

/** Settings that change the computation but not the tensors: other values are rejected. */
const neutralValues: Readonly<Record<string, readonly unknown[]>> = {
  is_causal: [false],
  is_decoder: [false],
  use_cross_attention: [false],
};

/** @throws {FormatError} for a missing, invalid or unknown setting */
export function encoderFromHub(file: ModelFile, options: HubDecoder): EncoderConfig {
  refuseSettings(file.fields, neutralValues);
  return { ...unrotatedFromHub(file, { isTied: true, ...options }), isTied: true, isEncoder: true };
}

/** How a checkpoint names tensors that surround the encoder. */
export interface HubEncoderFile {
  /** Prefixes of the encoder in checkpoints that have heads. */
  readonly outer: readonly string[];
  /** Pretraining heads, which embeddings do not use. */
  readonly heads: RegExp;
}

/** A view of the encoder only, with the standard names of norms. */
export function encoderPart(file: ModelFile, { outer, heads }: HubEncoderFile): ModelFile {
  if (file.format === 'gguf') return file;
  const rename = (name: string): string | undefined => {
    const prefix = outer.find((begin) => name.startsWith(begin)) ?? '';
    const own = name.slice(prefix.length);
    if (heads.test(own)) return undefined;
    return own.replace(/(norm)\.gamma$/i, '$1.weight').replace(/(norm)\.beta$/i, '$1.bias');
  };
  return { ...file, store: renamedStore(file.store, rename) };
}

/** Number of rows of an optional table; 0 without it. */
export function rowsOf({ tensors }: TensorStore, name: string): number {
  return tensors.get(name)?.shape[0] ?? 0;
}

/**
 * Names of the attention matrices of a layer in Hugging Face checkpoints, which store q, k and v separately or fused.
 */
export interface HubAttention {
  readonly qkv: string | readonly [q: string, k: string, v: string];
  readonly output: string;
}

/** The attention matrices of a layer; fused or separate in GGUF files. */
export function encoderAttention(
  names: TensorNames,
  { hiddenDim, numHeads, numKvHeads, headDim }: DecoderConfig,
  own: string,
  hub: HubAttention,
  bias: Bias,
): WeightRequest[] {
  const isFusedInHub = typeof hub.qkv === 'string';
  const [q, k, v] = typeof hub.qkv === 'string' ? [hub.qkv, hub.qkv, hub.qkv] : hub.qkv;
  return [
    ...names.fused({
      fused: [`${own}.attn_qkv`, isFusedInHub ? q : ''],
      parts: [
        [`${own}.attn_q`, q, numHeads * headDim],
        [`${own}.attn_k`, k, numKvHeads * headDim],
        [`${own}.attn_v`, v, numKvHeads * headDim],
      ],
      numInputs: hiddenDim,
      bias,
      ...(names.isHub ? { isSplit: !isFusedInHub } : {}),
    }),
    ...names.matrix([`${own}.attn_output`, hub.output], [hiddenDim, numHeads * headDim], bias),
  ];
}

/** Names of a norm with its bias. */
export function biasedNorm(names: TensorNames, of: Names, { hiddenDim }: DecoderConfig): WeightRequest[] {
  return names.norm(of, hiddenDim, 'required');
}

/**
 * The dense layers after pooling that the file has. `openDenseLayers` gives those of a folder the same names.
 * @throws {FormatError} when they do not lead back to the hidden size
 */
export function* denseTensors({ fields, store }: ModelFile, { hiddenDim }: DecoderConfig): Generator<WeightRequest> {
  let numInputs = hiddenDim;
  for (const layer of denseLayers) {
    const name = `${layer}.weight`;
    const numOutputs = rowsOf(store, name);
    if (numOutputs === 0) continue;
    yield { name, storedName: name, shape: [numOutputs, numInputs] };
    numInputs = numOutputs;
  }
  if (numInputs !== hiddenDim) throw fields.refusal('dense layers', `${hiddenDim} outputs`, numInputs);
}

/** The layers with an output per token that the file has. `openTokenLayers` gives those of a folder the same names. */
export function* tokenTensors(file: ModelFile, { hiddenDim }: DecoderConfig): Generator<WeightRequest> {
  for (const layer of tokenLayers) {
    const numOutputs = rowsOf(file.store, `${layer}.weight`);
    if (numOutputs === 0) continue;
    const shape = [layer === 'sparse_linear' ? 1 : numOutputs, hiddenDim] as const;
    yield* tensorNames(file).matrix([layer, layer], shape, 'optional');
  }
}

/** The layer that computes the vectors of tokens. */
const vectorLayer: (typeof tokenLayers)[number] = 'colbert_linear';

/** The store of a checkpoint of Stanford's ColBERT, whose layer gets the name that models know. */
export function colbertStore(store: TensorStore): TensorStore {
  return renamedStore(store, (name) => (name === 'linear.weight' ? `${vectorLayer}.weight` : name));
}

/** The dense layers of a folder. */
export interface DenseLayers {
  /** Their files, in order. */
  readonly files: readonly string[];
  /** Whether they compute the vectors of tokens, in a model without pooling. */
  readonly isPerToken: boolean;
}

/**
 * A store that adds the layers of these sentence-transformers modules. Closing it closes all files. If a module cannot be opened,
 * everything is closed, including `store`.
 */
export async function openDenseLayers(
  store: TensorStore,
  { files, isPerToken }: DenseLayers,
  open: (name: string) => Promise<TensorStore>,
): Promise<TensorStore> {
  // any further layer gets a name that no architecture knows, and is rejected
  const pooled = (index: number): string => denseLayers[index] ?? `dense_${index + 2}`;
  const named = files.map((name, index): LayerFile => [isPerToken ? vectorLayer : pooled(index), name]);
  return openLayers(store, async () => named, open);
}

/** The files of a folder. */
export interface LayerFiles {
  has(name: string): Promise<boolean>;
  open(name: string): Promise<TensorStore>;
}

/** Values of `model_type` of models that may have token layers. */
const typesWithTokenLayers: readonly unknown[] = ['xlm-roberta'];

/**
 * A store that adds the token layers of the folder, from safetensors or PyTorch files. Closes files as `openDenseLayers` does.
 * @param type `model_type` of the model
 */
export async function openTokenLayers(store: TensorStore, type: unknown, files: LayerFiles): Promise<TensorStore> {
  const has = (name: string): Promise<boolean> => files.has(name);
  return openLayers(
    store,
    () => tokenLayerFiles(type, has),
    (name) => files.open(name),
  );
}

/** The files of token layers in the folder of a model. @param type `model_type` */
export async function tokenLayerFiles(
  type: unknown,
  has: (name: string) => Promise<boolean>,
): Promise<readonly LayerFile[]> {
  const files: LayerFile[] = [];
  if (!typesWithTokenLayers.includes(type)) return files;
  for (const layer of tokenLayers) {
    for (const name of [`${layer}.safetensors`, `${layer}.pt`]) {
      if (!(await has(name))) continue;
      files.push([layer, name]);
      break;
    }
  }
  return files;
}

/** A layer in a separate file. */
export type LayerFile = readonly [layer: string, file: string];

async function openLayers(
  store: TensorStore,
  find: () => Promise<readonly LayerFile[]>,
  open: (name: string) => Promise<TensorStore>,
): Promise<TensorStore> {
  const opened: (readonly [layer: string, TensorStore])[] = [];
  try {
    for (const [layer, file] of await find()) opened.push([layer, await open(file)]);
  } catch (error) {
    for (const each of [store, ...opened.map(([, own]) => own)]) await each.close();
    throw error;
  }
  return opened.length === 0 ? store : withLayers(store, opened);
}

function withLayers(store: TensorStore, layers: readonly (readonly [layer: string, TensorStore])[]): TensorStore {
  const tensors = new Map(store.tensors);
  for (const [layer, own] of layers) {
    // in separate files, tensors have the name of the class that holds the layer, or no prefix
    for (const [name, tensor] of own.tensors) {
      const parts = name.split('.').filter((part) => part !== 'linear' && part !== layer);
      tensors.set([layer, ...parts].join('.'), tensor);
    }
  }
  const close = async (): Promise<void> => {
    for (const each of [store, ...layers.map(([, own]) => own)]) await each.close();
  };
  return { name: store.name, tensors, close };
}
