/** The memory of an array as bytes. */
export function bytesOf({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}

/** Bytes as floats; a copy, for bytes may lie at any offset. */
export function floatsOf(bytes: Uint8Array): Float32Array<ArrayBuffer> {
  return new Float32Array(bytes.slice().buffer);
}
