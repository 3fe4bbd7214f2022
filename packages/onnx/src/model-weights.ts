/**
 * The weights of an exported model under their Hugging Face names. Exporters keep the names of most parameters; weight
 * matrices become anonymous (`onnx::MatMul_123`), transposed or quantized. Their names are recovered from the node that
 * reads them: `/encoder/layer.0/attention/self/query/MatMul`, or from the bias that is added to the result.
 */
import type { StoredTensor, TensorStore } from '@winnow/bytes';
import { decoder, dtypeInfo, FormatError, isDType, numElements } from '@winnow/tensor';
import { affineView, blocksView } from './dequantize.js';
import type { OnnxNode } from './graph.js';
import type { OnnxFile } from './onnx-file.js';
import type { OnnxTensor } from './tensor-proto.js';

/**
 * @returns a store whose tensors have the names and layouts of the Hugging Face model; quantized ones are read as f32.
 *   Closing it closes the file
 * @throws {FormatError} naming the node whose matrix is not supported
 */
export function onnxWeights(file: OnnxFile): TensorStore {
  const resolver = new Resolver(file);
  for (const node of file.nodes) resolver.visit(node);
  resolver.addNamed();
  return { name: file.name, tensors: resolver.tensors, close: () => file.close() };
}

class Resolver {
  readonly tensors: Map<string, StoredTensor> = new Map();
  readonly #file: OnnxFile;
  readonly #producers = new Map<string, OnnxNode>();
  readonly #consumers = new Map<string, OnnxNode[]>();
  /** Initializers that the store exposes under another name, or that are part of a quantized tensor. */
  readonly #used = new Set<string>();

  constructor(file: OnnxFile) {
    this.#file = file;
    for (const node of file.nodes) {
      for (const output of node.outputs) this.#producers.set(output, node);
      for (const input of node.inputs) {
        const list = this.#consumers.get(input);
        if (list === undefined) this.#consumers.set(input, [node]);
        else list.push(node);
      }
    }
  }

  visit(node: OnnxNode): void {
    switch (node.opType) {
      case 'MatMul':
      case 'Gemm':
        this.#product(node);
        break;
      case 'MatMulInteger':
        this.#integerProduct(node);
        break;
      case 'MatMulNBits':
        this.#blockProduct(node);
        break;
      case 'DequantizeLinear':
        this.#dequantized(node);
        break;
      default:
        break;
    }
  }

  /** Parameters that kept their names and are not handled above. */
  addNamed(): void {
    for (const [name, tensor] of this.#file.initializers) {
      if (this.#used.has(name) || this.tensors.has(name) || !isParameter(name)) continue;
      const { type } = tensor;
      if (isDType(type)) this.#add(folderName(name), plain(tensor, type, name));
    }
  }

  #add(name: string, tensor: StoredTensor): void {
    if (!this.tensors.has(name)) this.tensors.set(name, { ...tensor, name });
  }

  #refusal(node: OnnxNode, message: string): FormatError {
    return new FormatError({
      source: this.#file.name,
      field: `node ${node.name || node.outputs[0]} (${node.opType})`,
      message,
    });
  }

  #initializer(name: string | undefined): OnnxTensor | undefined {
    return name === undefined || name === '' ? undefined : this.#file.initializers.get(name);
  }

  #product(node: OnnxNode): void {
    const [, weightName] = node.inputs;
    const weight = this.#initializer(weightName);
    if (weight === undefined || weightName === undefined || weight.shape.length !== 2) return;
    const { type } = weight;
    if (!isDType(type)) throw this.#refusal(node, `expected a float matrix, got ${type}`);
    const isTransposed = node.opType === 'MatMul' || node.integers.get('transB') !== 1;
    const name = this.#moduleOf(node, weightName);
    this.#used.add(weightName);
    this.#add(`${name}.weight`, isTransposed ? transposed(weight, type, name) : plain(weight, type, name));
    const bias = node.opType === 'Gemm' ? node.inputs[2] : undefined;
    this.#nameBias(bias, name);
  }

  /** A bias that has lost its name. */
  #nameBias(biasName: string | undefined, module: string): void {
    const bias = this.#initializer(biasName);
    if (bias === undefined || biasName === undefined || bias.shape.length !== 1 || isParameter(biasName)) return;
    if (!isDType(bias.type)) return;
    this.#used.add(biasName);
    this.#add(`${module}.bias`, plain(bias, bias.type, `${module}.bias`));
  }

  /** `MatMulInteger(x, W, xZero, wZero)`, then Cast and Mul by `xScale * wScale`. */
  #integerProduct(node: OnnxNode): void {
    const [, weightName, , zeroName] = node.inputs;
    const data = this.#initializer(weightName);
    if (data === undefined || weightName === undefined) return;
    const base = weightName.replace(/_quantized$/, '');
    const scaleName = this.#initializer(`${base}_scale`) === undefined ? this.#scaleBehind(node) : `${base}_scale`;
    const scale = this.#initializer(scaleName);
    if (scale === undefined) throw this.#refusal(node, 'expected the scale of its weights in the following Mul');
    const name = this.#moduleOf(node, base);
    const zeroPoint = this.#initializer(zeroName);
    for (const used of [weightName, scaleName, zeroName]) if (used !== undefined) this.#used.add(used);
    const view = affineView(this.#file.name, `${name}.weight`, { data, scale, zeroPoint, axis: 1, isTransposed: true });
    this.#add(`${name}.weight`, view);
  }

  #scaleBehind(node: OnnxNode): string | undefined {
    for (const cast of this.#consumers.get(node.outputs[0] ?? '') ?? []) {
      for (const product of cast.opType === 'Cast' ? (this.#consumers.get(cast.outputs[0] ?? '') ?? []) : [cast]) {
        if (product.opType !== 'Mul') continue;
        for (const input of product.inputs) {
          if (this.#initializer(input) !== undefined) return input;
          const inner = this.#producers.get(input);
          const found = inner?.opType === 'Mul' ? inner.inputs.find((name) => this.#initializer(name)) : undefined;
          if (found !== undefined) return found;
        }
      }
    }
    return undefined;
  }

  #blockProduct(node: OnnxNode): void {
    const [, dataName, scalesName, zerosName, indexName] = node.inputs;
    const [data, scales] = [this.#initializer(dataName), this.#initializer(scalesName)];
    if (data === undefined || scales === undefined || dataName === undefined || scalesName === undefined) {
      throw this.#refusal(node, 'expected codes and scales as initializers');
    }
    if (indexName !== undefined && indexName !== '') throw this.#refusal(node, 'a group index is not supported');
    const integer = (key: string, fallback?: number): number => {
      const value = node.integers.get(key) ?? fallback;
      if (value !== undefined && Number.isSafeInteger(value) && value > 0) return value;
      throw this.#refusal(node, `expected a positive ${key}, got ${value}`);
    };
    const zeroPoints = this.#initializer(zerosName);
    for (const used of [dataName, scalesName, zerosName]) if (used !== undefined) this.#used.add(used);
    const name = this.#moduleOf(node, dataName.replace(/_(Q4|Q8|quant|quantized)$/, ''));
    const view = blocksView(this.#file.name, `${name}.weight`, {
      data,
      scales,
      zeroPoints,
      numInputs: integer('K'),
      numOutputs: integer('N'),
      bits: integer('bits', 4),
      blockSize: integer('block_size'),
    });
    this.#add(`${name}.weight`, view);
  }

  /** Of an initializer that a MatMul reads, or of rows that a Gather reads from a quantized table. */
  #dequantized(node: OnnxNode): void {
    const [dataName, scaleName, zeroName] = node.inputs;
    const gather = this.#producers.get(dataName ?? '');
    const isGathered = gather?.opType === 'Gather';
    const storedName = isGathered ? gather.inputs[0] : dataName;
    const [data, scale] = [this.#initializer(storedName), this.#initializer(scaleName)];
    if (data === undefined || scale === undefined || storedName === undefined) return;
    const zeroPoint = this.#initializer(zeroName);
    for (const used of [storedName, scaleName, zeroName]) if (used !== undefined) this.#used.add(used);
    if (node.integers.has('block_size') && node.integers.get('block_size') !== 0) {
      throw this.#refusal(node, 'blocks of DequantizeLinear are not supported');
    }
    if (data.shape.length !== 2) {
      if (data.shape.length < 2 && !isParameter(storedName)) return;
      throw this.#refusal(node, `expected a quantized matrix, got ${data.shape.length} dimensions`);
    }
    const axis = node.integers.get('axis') ?? 1;
    const base = storedName.replace(/_quantized$/, '');
    const readers = this.#consumers.get(node.outputs[0] ?? '') ?? [];
    const product = isGathered ? undefined : readers.find(({ opType }) => opType === 'MatMul' || opType === 'Gemm');
    const isTransposed = product !== undefined && (product.opType === 'MatMul' || product.integers.get('transB') !== 1);
    const name = product === undefined ? folderName(base) : `${this.#moduleOf(product, base)}.weight`;
    this.#add(name, affineView(this.#file.name, name, { data, scale, zeroPoint, axis, isTransposed }));
  }

  /** The module whose matrix a node multiplies by. */
  #moduleOf(node: OnnxNode, weightName: string): string {
    if (isParameter(weightName)) return folderName(weightName).replace(/\.weight$/, '');
    const path = /^\/?(.+)\/(?:MatMul|Gemm)(?:_\w+)?$/.exec(node.name)?.[1];
    const fromPath = path
      ?.split('/')
      .filter((part) => part !== '')
      .join('.');
    if (fromPath !== undefined && /\.\d+\.|lm_head/.test(`${fromPath}.`)) return withoutRepeats(fromPath);
    for (const next of this.#consumers.get(node.outputs[0] ?? '') ?? []) {
      const bias = next.opType === 'Add' ? next.inputs.find((name) => isParameter(name)) : undefined;
      if (bias !== undefined && bias.endsWith('.bias')) return folderName(bias).replace(/\.bias$/, '');
    }
    if (fromPath !== undefined) return withoutRepeats(fromPath);
    throw this.#refusal(node, `its matrix ${weightName} has no name, and neither has the node or a following bias`);
  }
}

/** Names that exporters keep, as opposed to `onnx::MatMul_123` and numbers. */
function isParameter(name: string): boolean {
  return /^[A-Za-z_][\w.]*\.(weight|bias|weight_quantized)$/.test(name) || name.endsWith('.MatMul.weight');
}

/** Maps names of onnxruntime-genai and of quantizers to Hugging Face names. */
function folderName(name: string): string {
  return name
    .replace(/_quantized$/, '')
    .replace(/\.MatMul\.weight$/, '.weight')
    .replace(/\.Add\.bias$/, '.bias')
    .replace(/^(model\.layers\.\d+)\.attn\./, '$1.self_attn.')
    .replace(/^model\.layers\.\d+\.final_norm_layernorm\./, 'model.norm.');
}

/** `layer.0.attention` for a path such as `encoder/layer.0/layer.0.attention`. */
function withoutRepeats(path: string): string {
  const parts = path.split('.');
  return parts.filter((part, index) => part !== parts[index - 1] || /^\d+$/.test(part)).join('.');
}

function plain(tensor: OnnxTensor, dtype: StoredTensor['dtype'], name: string): StoredTensor {
  return {
    name,
    dtype,
    shape: tensor.shape,
    sizeBytes: tensor.sizeBytes,
    read: (target, options) => tensor.read(target, options),
  };
}

/** `[numInputs, numOutputs]` as `[numOutputs, numInputs]`, f32. Each read reads the whole stored matrix. */
function transposed(tensor: OnnxTensor, dtype: StoredTensor['dtype'], name: string): StoredTensor {
  const [numInputs, numOutputs] = tensor.shape as unknown as [number, number];
  const numValues = numElements(tensor.shape);
  const width = dtypeInfo(dtype).blockBytes;
  return {
    name,
    dtype: 'f32',
    shape: [numOutputs, numInputs],
    sizeBytes: 4 * numValues,
    async read(target, { byteOffset = 0, ...options } = {}) {
      const bytes = new Uint8Array(numValues * width);
      await tensor.read(bytes, options);
      const values = new Float32Array(numValues);
      decoder(dtype)(bytes, 0, values, 0, numValues);
      const begin = Math.floor(byteOffset / (4 * numInputs));
      const end = Math.min(numOutputs, Math.ceil((byteOffset + target.length) / (4 * numInputs)));
      const transposed = new Float32Array((end - begin) * numInputs);
      for (let row = begin, at = 0; row < end; row++) {
        for (let column = 0; column < numInputs; column++)
          transposed[at++] = values[column * numOutputs + row] as number;
      }
      target.set(new Uint8Array(transposed.buffer, byteOffset - begin * 4 * numInputs, target.length));
    },
  };
}
