/** Writes small ONNX files for tests, with the same protobuf library. */
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';

/** An initializer to write. */
export interface OnnxTensorInput {
  readonly name: string;
  /** Number of the element type: 1 f32, 2 u8, 3 i8, 7 i64, 10 f16. */
  readonly type: number;
  readonly dims: readonly number[];
  readonly data: Uint8Array;
  /** Write a reference to this file instead of the data. */
  readonly external?: { readonly location: string; readonly offset: number };
}

export interface OnnxNodeInput {
  readonly op: string;
  readonly name?: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly domain?: string;
  /** Integers, lists of integers, and floats as `{ float }`. */
  readonly attributes?: Readonly<Record<string, number | readonly number[] | { readonly float: number }>>;
}

export interface OnnxModelInput {
  readonly nodes: readonly OnnxNodeInput[];
  readonly initializers: readonly OnnxTensorInput[];
  /** Inputs and outputs with the number of their element type and their dims. */
  readonly inputs: readonly (readonly [name: string, type: number, dims: readonly (number | string)[]])[];
  readonly outputs: readonly (readonly [name: string, type: number, dims: readonly (number | string)[]])[];
}

function message(writer: BinaryWriter, field: number, write: (inner: BinaryWriter) => void): void {
  const inner = new BinaryWriter();
  write(inner);
  writer.tag(field, WireType.LengthDelimited).bytes(inner.finish());
}

const text = (writer: BinaryWriter, field: number, value: string): BinaryWriter =>
  writer.tag(field, WireType.LengthDelimited).string(value);
const integer = (writer: BinaryWriter, field: number, value: number): BinaryWriter =>
  writer.tag(field, WireType.Varint).int64(value);

/** The bytes of a model of opset 17 and of com.microsoft 1. */
export function writeOnnx({ nodes, initializers, inputs, outputs }: OnnxModelInput): Uint8Array {
  const model = new BinaryWriter();
  integer(model, 1, 8);
  text(model, 2, 'winnow-test');
  message(model, 7, (graph) => {
    for (const node of nodes) message(graph, 1, (writer) => writeNode(writer, node));
    text(graph, 2, 'graph');
    for (const tensor of initializers) message(graph, 5, (writer) => writeTensor(writer, tensor));
    for (const [field, values] of [
      [11, inputs],
      [12, outputs],
    ] as const) {
      for (const [name, type, dims] of values) {
        message(graph, field, (value) => {
          text(value, 1, name);
          message(value, 2, (typeProto) =>
            message(typeProto, 1, (tensor) => {
              integer(tensor, 1, type);
              message(tensor, 2, (shape) => {
                for (const dim of dims) {
                  message(shape, 1, (writer) => {
                    if (typeof dim === 'number') integer(writer, 1, dim);
                    else text(writer, 2, dim);
                  });
                }
              });
            }),
          );
        });
      }
    }
  });
  for (const [domain, version] of [
    ['', 17],
    ['com.microsoft', 1],
  ] as const) {
    message(model, 8, (opset) => {
      text(opset, 1, domain);
      integer(opset, 2, version);
    });
  }
  return model.finish();
}

function writeNode(
  writer: BinaryWriter,
  { op, name = '', inputs, outputs, domain, attributes = {} }: OnnxNodeInput,
): void {
  for (const input of inputs) text(writer, 1, input);
  for (const output of outputs) text(writer, 2, output);
  text(writer, 3, name);
  text(writer, 4, op);
  for (const [key, value] of Object.entries(attributes)) {
    message(writer, 5, (attribute) => {
      text(attribute, 1, key);
      if (typeof value === 'number') {
        integer(attribute, 3, value);
        integer(attribute, 20, 2);
      } else if ('float' in value) {
        attribute.tag(2, WireType.Bit32).float(value.float);
        integer(attribute, 20, 1);
      } else {
        for (const entry of value) integer(attribute, 8, entry);
        integer(attribute, 20, 7);
      }
    });
  }
  if (domain !== undefined) text(writer, 7, domain);
}

function writeTensor(writer: BinaryWriter, { name, type, dims, data, external }: OnnxTensorInput): void {
  for (const dim of dims) integer(writer, 1, dim);
  integer(writer, 2, type);
  text(writer, 8, name);
  if (external === undefined) {
    writer.tag(9, WireType.LengthDelimited).bytes(data);
    return;
  }
  const entries = { location: external.location, offset: String(external.offset), length: String(data.length) };
  for (const [key, value] of Object.entries(entries)) {
    message(writer, 13, (entry) => {
      text(entry, 1, key);
      text(entry, 2, value);
    });
  }
  integer(writer, 14, 1);
}
