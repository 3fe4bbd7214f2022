/** The contract of random-access byte sources: memory, a Blob, a file, a URL. */

export interface ReadOptions {
  readonly signal?: AbortSignal;
}

/** A random-access source of bytes; supports concurrent reads. */
export interface ByteSource {
  /** Name in error messages: a path, a URL, `memory`. */
  readonly name: string;
  readonly sizeBytes: number;
  /**
   * Fills `target` with the bytes starting at `byteOffset`.
   * @throws {IoError} when the range is not inside the source or fewer bytes arrive than requested
   */
  read(byteOffset: number, target: Uint8Array, options?: ReadOptions): Promise<void>;
  /** Releases files and connections. Reading afterwards throws `ReleasedError`. Repeated calls are a no-op. */
  close(): Promise<void>;
}
