import { memorySource, type ByteSource } from '@winnow/bytes';
import { FormatError, IoError, WinnowError } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import { InferenceSession, Tensor } from 'onnxruntime-node';
import { onnxWeights, openOnnx } from './index.js';
import { writeOnnx, type OnnxModelInput, type OnnxTensorInput } from './testing.js';

const bytesOf = (values: ArrayBufferView): Uint8Array =>
  new Uint8Array(values.buffer, values.byteOffset, values.byteLength).slice();
const f32 = (name: string, dims: readonly number[], values: readonly number[]): OnnxTensorInput => ({
  name,
  type: 1,
  dims,
  data: bytesOf(Float32Array.from(values)),
});
const ramp = (length: number, scale = 0.1): number[] =>
  Array.from({ length }, (_, i) => Math.sin(i * 1.7) * scale * 10);

async function valuesOf(bytes: Uint8Array, name: string, openExternal?: (location: string) => Promise<ByteSource>) {
  const file = await openOnnx(memorySource(bytes), openExternal === undefined ? {} : { openExternal });
  const store = onnxWeights(file);
  const tensor = store.tensors.get(name);
  expect([...store.tensors.keys()]).toContain(name);
  const target = new Uint8Array(tensor!.sizeBytes);
  await tensor!.read(target);
  // any piece equals that piece of the whole
  const piece = new Uint8Array(Math.min(7, target.length));
  await tensor!.read(piece, { byteOffset: target.length - piece.length });
  expect(piece).toEqual(target.slice(target.length - piece.length));
  await store.close();
  return { values: new Float32Array(target.buffer), shape: tensor!.shape };
}

/** The outputs of the graph for the rows of the identity, which are the transposed matrix. */
async function productOf(model: OnnxModelInput, numInputs: number): Promise<Float32Array> {
  const session = await InferenceSession.create(writeOnnx(model));
  const eye = Float32Array.from({ length: numInputs ** 2 }, (_, i) => (i % (numInputs + 1) === 0 ? 1 : 0));
  const [input, output] = [model.inputs[0]![0], model.outputs[0]![0]];
  const result = await session.run({ [input]: new Tensor('float32', eye, [numInputs, numInputs]) });
  return result[output]!.data as Float32Array;
}

function expectTransposed(actual: Float32Array, shape: readonly number[], product: Float32Array, limit = 1e-6): void {
  const [numOutputs, numInputs] = shape as [number, number];
  let worst = 0;
  for (let row = 0; row < numOutputs; row++) {
    for (let column = 0; column < numInputs; column++) {
      worst = Math.max(worst, Math.abs(actual[row * numInputs + column]! - product[column * numOutputs + row]!));
    }
  }
  expect(worst).toBeLessThan(limit);
}

const io = { inputs: [['x', 1, ['n', 32]]], outputs: [['y', 1, ['n', 3]]] } as const;
const path = '/encoder/layer.0/attention/self/query';
const name = 'encoder.layer.0.attention.self.query.weight';

test('anonymous, named by a path with empty scopes', async () => {
  const model: OnnxModelInput = {
    ...io,
    nodes: [
      { op: 'MatMul', name: `/${path.replace('/layer', '//layer')}/MatMul`, inputs: ['x', '12'], outputs: ['y'] },
    ],
    initializers: [f32('12', [32, 3], ramp(96))],
  };
  const { values, shape } = await valuesOf(writeOnnx(model), name);
  expectTransposed(values, shape, await productOf(model, 32));
});

describe('matrices, against onnxruntime', () => {
  test('anonymous, named by the node', async () => {
    const model: OnnxModelInput = {
      ...io,
      nodes: [{ op: 'MatMul', name: `${path}/MatMul`, inputs: ['x', 'onnx::MatMul_12'], outputs: ['y'] }],
      initializers: [f32('onnx::MatMul_12', [32, 3], ramp(96))],
    };
    const { values, shape } = await valuesOf(writeOnnx(model), name);
    expectTransposed(values, shape, await productOf(model, 32));
  });

  test('anonymous, named by the bias after it', async () => {
    const bias = 'encoder.layer.0.attention.self.query.bias';
    const model: OnnxModelInput = {
      ...io,
      nodes: [
        { op: 'MatMul', name: 'MatMul_7', inputs: ['x', '123'], outputs: ['p'] },
        { op: 'Add', inputs: [bias, 'p'], outputs: ['y'] },
      ],
      initializers: [f32('123', [32, 3], ramp(96)), f32(bias, [3], [0, 0, 0])],
    };
    const { values, shape } = await valuesOf(writeOnnx(model), name);
    expectTransposed(values, shape, await productOf(model, 32));
  });

  test.each([0, 1])('Gemm with transB %i', async (transB) => {
    const model: OnnxModelInput = {
      ...io,
      nodes: [{ op: 'Gemm', name: `${path}/Gemm`, inputs: ['x', 'w', 'b'], outputs: ['y'], attributes: { transB } }],
      initializers: [f32('w', transB === 1 ? [3, 32] : [32, 3], ramp(96)), f32('b', [3], [0, 0, 0])],
    };
    const { values, shape } = await valuesOf(writeOnnx(model), name);
    expectTransposed(values, shape, await productOf(model, 32));
  });

  test.each([
    [1, [0.01, 0.02, 0.03], [3, 0, 250]],
    [0, ramp(32, 0.001).map((value) => Math.abs(value) + 0.001), Array.from({ length: 32 }, (_, i) => 100 + i)],
  ])('DequantizeLinear along axis %i', async (axis, scales, zeros) => {
    const codes = Uint8Array.from({ length: 96 }, (_, i) => (i * 37) % 256);
    const model: OnnxModelInput = {
      ...io,
      nodes: [
        { op: 'DequantizeLinear', inputs: ['w_quantized', 'w_scale', 'w_zero'], outputs: ['w'], attributes: { axis } },
        { op: 'MatMul', name: `${path}/MatMul`, inputs: ['x', 'w'], outputs: ['y'] },
      ],
      initializers: [
        { name: 'w_quantized', type: 2, dims: [32, 3], data: codes },
        f32('w_scale', [scales.length], scales),
        { name: 'w_zero', type: 2, dims: [zeros.length], data: Uint8Array.from(zeros) },
      ],
    };
    const { values, shape } = await valuesOf(writeOnnx(model), name);
    expectTransposed(values, shape, await productOf(model, 32), 1e-5);
  });
});

test.each([0, 1])('DequantizeLinear before a Gemm with transB %i', async (transB) => {
  const dims = transB === 1 ? [3, 32] : [32, 3];
  const model: OnnxModelInput = {
    ...io,
    nodes: [
      { op: 'DequantizeLinear', inputs: ['w_quantized', 'w_scale', 'w_zero'], outputs: ['w'] },
      { op: 'Gemm', name: `${path}/Gemm`, inputs: ['x', 'w', 'b'], outputs: ['y'], attributes: { transB } },
    ],
    initializers: [
      { name: 'w_quantized', type: 2, dims, data: Uint8Array.from({ length: 96 }, (_, i) => (i * 37) % 256) },
      f32('w_scale', [], [0.01]),
      { name: 'w_zero', type: 2, dims: [], data: Uint8Array.of(120) },
      f32('b', [3], [0, 0, 0]),
    ],
  };
  const { values, shape } = await valuesOf(writeOnnx(model), name);
  expectTransposed(values, shape, await productOf(model, 32), 1e-5);
});

describe('quantized matrices', () => {
  test.each(['by name', 'by the product behind'])('MatMulInteger, the scale found %s', async (how) => {
    const scaleName = how === 'by name' ? 'onnx::MatMul_12_scale' : 'another';
    const codes = Int8Array.from({ length: 96 }, (_, i) => ((i * 37) % 255) - 127);
    const model: OnnxModelInput = {
      ...io,
      nodes: [
        { op: 'DynamicQuantizeLinear', inputs: ['x'], outputs: ['q', 'qs', 'qz'] },
        {
          op: 'MatMulInteger',
          name: `${path}/MatMul_quant`,
          inputs: ['q', 'onnx::MatMul_12_quantized', 'qz', 'zero'],
          outputs: ['i'],
        },
        { op: 'Cast', inputs: ['i'], outputs: ['c'], attributes: { to: 1 } },
        { op: 'Mul', inputs: ['qs', scaleName], outputs: ['s'] },
        { op: 'Mul', inputs: ['c', 's'], outputs: ['y'] },
      ],
      initializers: [
        { name: 'onnx::MatMul_12_quantized', type: 3, dims: [32, 3], data: bytesOf(codes) },
        f32(scaleName, [1], [0.02]),
        { name: 'zero', type: 3, dims: [1], data: bytesOf(Int8Array.of(0)) },
      ],
    };
    const { values, shape } = await valuesOf(writeOnnx(model), name);
    // the rows of the identity are exact in 8 bits: 0 and 255/255
    expectTransposed(values, shape, await productOf(model, 32), 1e-5);
  });

  test.each([true, false])('MatMulNBits, zero points %s', async (hasZeros) => {
    const codes = Uint8Array.from({ length: 3 * 2 * 8 }, (_, i) => (i * 57 + 13) % 256);
    const model: OnnxModelInput = {
      ...io,
      nodes: [
        {
          op: 'MatMulNBits',
          domain: 'com.microsoft',
          name: '/model/layers.0/self_attn/q_proj/MatMul_Q4',
          inputs: ['x', 'w_Q4', 'scales', ...(hasZeros ? ['zeros'] : [])],
          outputs: ['y'],
          attributes: { K: 32, N: 3, bits: 4, block_size: 16 },
        },
      ],
      initializers: [
        { name: 'w_Q4', type: 2, dims: [3, 2, 8], data: codes },
        f32('scales', [6], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]),
        ...(hasZeros ? [{ name: 'zeros', type: 2, dims: [3], data: Uint8Array.of(0x37, 0xa2, 0x5c) }] : []),
      ],
    };
    const { values, shape } = await valuesOf(writeOnnx(model), 'model.layers.0.self_attn.q_proj.weight');
    expectTransposed(values, shape, await productOf(model, 32), 1e-5);
  });
});

describe('external data', () => {
  const external = (location: string, offset = 4): Uint8Array =>
    writeOnnx({
      ...io,
      nodes: [],
      initializers: [{ ...f32('a.weight', [2], [1, 2]), external: { location, offset } }],
    });

  test('is read in place', async () => {
    const data = new Uint8Array(12);
    data.set(bytesOf(Float32Array.of(5, 6)), 4);
    const { values } = await valuesOf(external('model.onnx_data'), 'a.weight', async () => memorySource(data));
    expect([...values]).toEqual([5, 6]);
  });

  test.each(['../secret', '/etc/passwd', 'C:\\x', 'a/../../b', ''])('rejects the location %j', async (location) => {
    await expect(openOnnx(memorySource(external(location)))).rejects.toThrow(FormatError);
  });

  test('rejects a range beyond the file', async () => {
    const file = await openOnnx(memorySource(external('d', 8)), {
      openExternal: async () => memorySource(new Uint8Array(12)),
    });
    await expect(file.initializers.get('a.weight')?.read(new Uint8Array(8))).rejects.toThrow(FormatError);
    await file.close();
  });
});

describe('errors', () => {
  const model: OnnxModelInput = {
    ...io,
    nodes: [
      { op: 'DequantizeLinear', inputs: ['q', 's'], outputs: ['w'], attributes: { axis: 1 } },
      { op: 'MatMul', name: 'anonymous', inputs: ['x', 'w0'], outputs: ['y'] },
    ],
    initializers: [
      f32('w0', [32, 3], ramp(96)),
      f32('s', [1], [1]),
      { name: 'q', type: 3, dims: [2, 2], data: new Uint8Array(4) },
    ],
  };

  test('the error of a matrix without a name gives its node', async () => {
    const file = await openOnnx(memorySource(writeOnnx(model)));
    expect(() => onnxWeights(file)).toThrow(/node anonymous \(MatMul\).*w0/);
  });

  test('truncated files and flipped bits give a typed error or a valid file', async () => {
    const bytes = writeOnnx(model);
    const attempt = async (damaged: Uint8Array): Promise<void> => {
      try {
        const file = await openOnnx(memorySource(damaged));
        for (const tensor of file.initializers.values()) await tensor.read(new Uint8Array(tensor.sizeBytes));
        onnxWeights(file);
      } catch (error) {
        expect(error instanceof FormatError || error instanceof IoError, String(error)).toBe(true);
        expect(WinnowError.isInstance(error)).toBe(true);
      }
    };
    for (let length = 0; length < bytes.length; length++) await attempt(bytes.slice(0, length));
    for (let bit = 0; bit < 8 * bytes.length; bit++) {
      const damaged = bytes.slice();
      damaged[bit >> 3]! ^= 1 << (bit & 7);
      await attempt(damaged);
    }
  }, 60_000);

  test('not a model', async () => {
    await expect(openOnnx(memorySource(new Uint8Array(0)))).rejects.toThrow(FormatError);
    await expect(openOnnx(memorySource(new TextEncoder().encode('GGUF............')))).rejects.toThrow(FormatError);
  });
});
