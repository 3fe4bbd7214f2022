/** ONNX: the fields of the protobuf messages, with matching lengths, and the bytes. */
import { memorySource } from '@winnow/bytes';
import { onnxWeights, openOnnx } from '@winnow/onnx';
import { writeOnnx } from '@winnow/onnx/testing';
import { concat, extremeInteger, mutateBytes, pick, type Random } from '@winnow/test-utils';
import type { Target } from '../../src/target.ts';

/** A field: an integer, bytes, or a message. */
interface Field {
  number: number;
  wireType: number;
  value: bigint | Uint8Array | Field[];
}

function varint(value: bigint): Uint8Array {
  const bytes: number[] = [];
  for (let rest = BigInt.asUintN(64, value); ; rest >>= 7n) {
    if (rest < 128n) return Uint8Array.from([...bytes, Number(rest)]);
    bytes.push(Number(rest & 127n) | 128);
  }
}

/** Undefined for bytes that are not a message. */
function parse(bytes: Uint8Array): Field[] | undefined {
  const fields: Field[] = [];
  let at = 0;
  const integer = (): bigint => {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = bytes[at++];
      if (byte === undefined) return -1n;
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return value;
    }
    return -1n;
  };
  while (at < bytes.length) {
    const tag = integer();
    const [number, wireType] = [Number(tag >> 3n), Number(tag & 7n)];
    const width = wireType === 1 ? 8 : wireType === 5 ? 4 : 0;
    if (tag < 0n || number === 0 || ![0, 1, 2, 5].includes(wireType)) return undefined;
    if (wireType === 0) fields.push({ number, wireType, value: integer() });
    else {
      const length = wireType === 2 ? Number(integer()) : width;
      if (length < 0 || at + length > bytes.length) return undefined;
      const value = bytes.subarray(at, at + length);
      fields.push({ number, wireType, value: (wireType === 2 && length > 1 && parse(value)) || value });
      at += length;
    }
  }
  return fields;
}

function serialize(fields: readonly Field[]): Uint8Array {
  const parts = fields.map(({ number, wireType, value }) => {
    const tag = varint((BigInt(number) << 3n) | BigInt(wireType));
    if (typeof value === 'bigint') return concat(tag, varint(value));
    const bytes = Array.isArray(value) ? serialize(value) : value;
    return wireType === 2 ? concat(tag, varint(BigInt(bytes.length)), bytes) : concat(tag, bytes);
  });
  return concat(...parts);
}

function messagesOf(fields: Field[], found: Field[][] = []): Field[][] {
  found.push(fields);
  for (const { value } of fields) if (Array.isArray(value)) messagesOf(value, found);
  return found;
}

function mutate(random: Random, input: Uint8Array): Uint8Array {
  const root = parse(input);
  if (root === undefined || root.length === 0 || random.nextInt(5) === 0) return mutateBytes(random, input);
  const message = pick(
    random,
    messagesOf(root).filter((fields) => fields.length > 0),
  );
  const at = random.nextInt(message.length);
  const field = message[at] as Field;
  const kind = random.nextInt(6);
  if (kind === 0) message.splice(at, 1);
  else if (kind === 1) message.splice(at, 0, structuredClone(field));
  else if (kind === 2) field.number = 1 + random.nextInt(30);
  else if (kind === 3) message.push({ number: field.number, wireType: 0, value: extremeInteger(random) });
  else if (typeof field.value === 'bigint') field.value = extremeInteger(random);
  else if (!Array.isArray(field.value)) field.value = mutateBytes(random, field.value);
  else message.splice(at, 0, structuredClone(pick(random, message)));
  return serialize(root);
}

function example(type: number, elementBytes: number): Uint8Array {
  const tensor = (name: string, dims: readonly number[]): Parameters<typeof writeOnnx>[0]['initializers'][number] => ({
    ...{ name, type, dims, data: new Uint8Array(elementBytes * dims.reduce((a, b) => a * b, 1)).fill(60) },
  });
  return writeOnnx({
    inputs: [['x', 1, ['n', 4]]],
    outputs: [['y', 1, ['n', 3]]],
    nodes: [
      { op: 'MatMul', name: '/encoder/layer.0/query/MatMul', inputs: ['x', '12'], outputs: ['m'] },
      { op: 'Add', inputs: ['b', 'm'], outputs: ['z'] },
      {
        op: 'Gemm',
        name: '/g/Gemm',
        inputs: ['z', 'w'],
        outputs: ['y'],
        attributes: { transB: 1, alpha: { float: 1 } },
      },
    ],
    initializers: [tensor('12', [4, 3]), tensor('b', [3]), tensor('w', [3, 3])],
  });
}

export async function createTarget(): Promise<Target> {
  return {
    examples: [example(1, 4), example(10, 2), example(2, 1), example(7, 8)],
    mutate,
    async run(input) {
      const file = await openOnnx(memorySource(input, 'fuzz.onnx'));
      const store = onnxWeights(file);
      for (const tensor of store.tensors.values()) await tensor.read(new Uint8Array(Math.min(64, tensor.sizeBytes)));
      await store.close();
    },
  };
}
