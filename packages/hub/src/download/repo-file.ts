/** Files of a commit, as the hub lists them and as a cache records them. */
import { isRecord } from '@winnow/tensor';
import { isSafeFileName } from '../file-name.js';

/** A file as the hub lists it. */
export interface RepoFile {
  readonly path: string;
  readonly sizeBytes: number;
  /** Name of its blob: sha256 of the content for large files, git's sha1 for others. */
  readonly etag: string;
  /** How `etag` is computed from the content; `undefined` when it is not. */
  readonly hash: 'sha256' | 'git-sha1' | undefined;
}

export function isCommit(revision: unknown): revision is string {
  return typeof revision === 'string' && /^[0-9a-f]{40}$/.test(revision);
}

/** The record of a listing. */
export function listingText(files: readonly RepoFile[]): string {
  return `${JSON.stringify({ version: 1, files })}\n`;
}

/** @returns undefined for anything that is not a record of a listing */
export function parseListing(text: string): RepoFile[] | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  const files = isRecord(value) && value['version'] === 1 ? value['files'] : undefined;
  return Array.isArray(files) && files.every(isRepoFile) ? files : undefined;
}

function isRepoFile(value: unknown): value is RepoFile {
  if (!isRecord(value)) return false;
  const { path, sizeBytes, etag, hash } = value;
  return (
    typeof path === 'string' &&
    isSafeFileName(path) &&
    Number.isSafeInteger(sizeBytes) &&
    typeof etag === 'string' &&
    /^[0-9a-f]{40,64}$/.test(etag) &&
    (hash === undefined || hash === 'sha256' || hash === 'git-sha1')
  );
}
