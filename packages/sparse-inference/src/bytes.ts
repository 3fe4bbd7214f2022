/** The memory of an array as bytes. */
export function bytesOf({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}

/** Bytes as floats; a copy, since bytes may be unaligned. */
export function floatsOf(bytes: Uint8Array): Float32Array<ArrayBuffer> {
  return new Float32Array(bytes.slice().buffer);
}
