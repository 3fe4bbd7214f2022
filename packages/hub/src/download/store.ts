/** The storage that a download writes to. Failures are `HubError`s with the reason `disk`. */
import type { RepoFile } from './repo-file.js';

/** A hash of consecutive pieces. */
export interface StreamHash {
  update(bytes: Uint8Array): void;
  /** In hexadecimal digits. */
  digest(): string;
}

/** A file that is being downloaded. It is kept when the download is interrupted, and continued by the next one. */
export interface PartFile {
  /** Number of bytes stored so far. */
  size(): Promise<number>;
  /** Fills the beginning of `target`. @returns the number of bytes, 0 at the end of the file */
  read(target: Uint8Array, position: number): Promise<number>;
  write(bytes: Uint8Array, position: number): Promise<void>;
  /** Removes all bytes. */
  clear(): Promise<void>;
  /** Gives the verified content its final name. */
  complete(): Promise<void>;
  /** Closes and removes the file. */
  discard(): Promise<void>;
  close(): Promise<void>;
}

/** The cache of one repository. */
export interface RepoStore {
  createHash(algorithm: 'sha256' | 'sha1'): StreamHash;
  /** The commit that a branch or tag had when it was last downloaded. */
  readRef(revision: string): Promise<string | undefined>;
  writeRef(revision: string, commit: string): Promise<void>;
  /** The files of a commit, as recorded by an earlier download. */
  readListing(commit: string): Promise<readonly RepoFile[] | undefined>;
  writeListing(commit: string, files: readonly RepoFile[]): Promise<void>;
  /** @throws {CapacityError} when there is too little space for those of the files that are missing */
  checkSpace(files: readonly RepoFile[]): Promise<void>;
  /** @returns undefined when the file is complete */
  openPart(file: RepoFile): Promise<PartFile | undefined>;
  /** Adds a complete file to a commit. */
  add(commit: string, file: RepoFile): Promise<void>;
  /** Size of a complete file of a commit in bytes, undefined when it is missing. */
  sizeOf(commit: string, file: RepoFile): Promise<number | undefined>;
  /** Names of the files of a commit without a listing, which another tool downloaded. */
  names(commit: string): Promise<readonly string[]>;
}
