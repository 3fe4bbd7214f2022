/** The parts of graph nodes that locating weights requires. Field numbers: onnx.proto3 of ONNX 1.19. */
import { decodeMessage } from './wire.js';

export interface OnnxNode {
  readonly name: string;
  readonly opType: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  /** Integer attributes, such as `axis`, `transB`, `K`. */
  readonly integers: ReadonlyMap<string, number>;
  /** Float attributes, such as `epsilon`. */
  readonly floats: ReadonlyMap<string, number>;
}

export function decodeNode(source: string, byteOffset: number, bytes: Uint8Array): OnnxNode {
  const inputs: string[] = [];
  const outputs: string[] = [];
  const integers = new Map<string, number>();
  const floats = new Map<string, number>();
  let name = '';
  let opType = '';
  decodeMessage(source, byteOffset, 'node', bytes, (field, reader) => {
    if (field === 1) inputs.push(reader.string());
    else if (field === 2) outputs.push(reader.string());
    else if (field === 3) name = reader.string();
    else if (field === 4) opType = reader.string();
    else if (field === 5) decodeAttribute(source, byteOffset, reader.bytes(), integers, floats);
    else return false;
    return true;
  });
  return { name, opType, inputs, outputs, integers, floats };
}

function decodeAttribute(
  source: string,
  byteOffset: number,
  bytes: Uint8Array,
  integers: Map<string, number>,
  floats: Map<string, number>,
): void {
  let name = '';
  let integer: number | undefined;
  let float: number | undefined;
  decodeMessage(source, byteOffset, 'attribute', bytes, (field, reader) => {
    if (field === 1) name = reader.string();
    else if (field === 2) float = reader.float();
    else if (field === 3) integer = Number(reader.int64());
    else return false;
    return true;
  });
  if (integer !== undefined) integers.set(name, integer);
  if (float !== undefined) floats.set(name, float);
}

/** The name of a ValueInfoProto. */
export function decodeValueName(source: string, byteOffset: number, bytes: Uint8Array): string {
  let name = '';
  decodeMessage(source, byteOffset, 'value', bytes, (field, reader) => {
    if (field !== 1) return false;
    name = reader.string();
    return true;
  });
  return name;
}
