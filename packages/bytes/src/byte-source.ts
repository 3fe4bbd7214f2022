/** The contract of everything that can be read at a position: memory, a Blob, a file, a URL. */

/** Bytes that can be read at any position, many reads at a time. */
export interface ByteSource {
  /** What to call it in messages: a path, a URL, `memory`. */
  readonly name: string;
  readonly sizeBytes: number;
  /**
   * Fills `target` with the bytes from `byteOffset` on.
   * @throws {IoError} when the range is not inside the source or fewer bytes arrive than were asked for
   */
  read(byteOffset: number, target: Uint8Array, options?: { signal?: AbortSignal }): Promise<void>;
  /** Releases files and connections. Reading afterwards throws `ReleasedError`. Closing twice is harmless. */
  close(): Promise<void>;
}
